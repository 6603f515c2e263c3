package main

import (
	"context"

	"k8s.io/kubernetes/cmd/kube-controller-manager/app"
	"k8s.io/kubernetes/cmd/kube-controller-manager/app/options"
)

// startControllers starts kube-controller-manager with its usual controllers, each with its own ServiceAccount.
func startControllers(tasks *tasks, kubeconfig string, files files) error {
	opts, err := options.NewKubeControllerManagerOptions()
	if err != nil {
		return err
	}
	arguments := []string{
		"--kubeconfig=" + kubeconfig,
		"--secure-port=0",
		"--leader-elect=false",
		"--profiling=false",
		"--use-service-account-credentials=true",
		"--service-account-private-key-file=" + files.accountsKey,
		"--root-ca-file=" + files.authority,
		"--cluster-signing-cert-file=" + files.authority,
		"--cluster-signing-key-file=" + files.authorityKey,
		// Tests wait for the controllers.
		"--kube-api-qps=500",
		"--kube-api-burst=1000",
		"--horizontal-pod-autoscaler-sync-period=1s",
	}
	all, disabled, aliases := app.KnownControllers(), app.ControllersDisabledByDefault(), app.ControllerAliases()
	flags := opts.Flags(all, disabled, aliases)
	if err := parse(flags, arguments); err != nil {
		return err
	}
	opts.ParsedFlags = &flags
	config, err := opts.Config(tasks.ctx, all, disabled, aliases)
	if err != nil {
		return err
	}
	tasks.start("kube-controller-manager", func(ctx context.Context) error { return app.Run(ctx, config.Complete()) })
	return nil
}
