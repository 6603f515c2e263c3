package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/cmd/kube-scheduler/app"
	"k8s.io/kubernetes/cmd/kube-scheduler/app/options"
)

const schedulerConfig = `apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
clientConnection: {kubeconfig: %q, qps: 500, burst: 1000}
leaderElection: {leaderElect: false}
enableProfiling: false
profiles:
- schedulerName: default-scheduler
  plugins: {filter: {enabled: [{name: %s}]}}
`

// startScheduler starts kube-scheduler with an additional plugin.
func startScheduler(tasks *tasks, dir, kubeconfig string) error {
	path := filepath.Join(dir, "scheduler.yaml")
	if err := os.WriteFile(path, fmt.Appendf(nil, schedulerConfig, kubeconfig, pluginName), 0o600); err != nil {
		return err
	}
	opts := options.NewOptions()
	if err := parse(*opts.Flags, []string{"--config=" + path, "--secure-port=0", "--leader-elect=false"}); err != nil {
		return err
	}
	config, scheduler, err := app.Setup(tasks.ctx, opts, app.WithPlugin(pluginName, newOutcomePlugin))
	if err != nil {
		return err
	}
	tasks.start("kube-scheduler", func(ctx context.Context) error { return app.Run(ctx, config, scheduler) })
	return nil
}

const pluginName = "SimulatedOutcome"

// outcomePlugin rejects the node for pods with the outcome pending.
type outcomePlugin struct{}

func newOutcomePlugin(context.Context, runtime.Object, fwk.Handle) (fwk.Plugin, error) {
	return outcomePlugin{}, nil
}

func (outcomePlugin) Name() string { return pluginName }

func (outcomePlugin) Filter(_ context.Context, _ fwk.CycleState, pod *v1.Pod, _ fwk.NodeInfo) *fwk.Status {
	if pod.Annotations[outcomeAnnotation] == "pending" {
		return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, "Insufficient cpu")
	}
	return nil
}
