package main

import (
	"context"
	"net"

	"go.etcd.io/etcd/server/v3/embed"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/kubernetes/cmd/kube-apiserver/app"
	"k8s.io/kubernetes/cmd/kube-apiserver/app/options"
)

// startAPIServer starts kube-apiserver on a listener.
func startAPIServer(tasks *tasks, listener net.Listener, site site, files files, etcd *embed.Etcd) error {
	opts := options.NewServerRunOptions()
	arguments := []string{
		"--etcd-servers=" + etcd.Config().ListenClientUrls[0].String(),
		"--bind-address=" + listener.Addr().(*net.TCPAddr).IP.String(),
		"--advertise-address=" + site.advertised(listener),
		"--service-cluster-ip-range=10.96.0.0/16",
		"--allow-privileged=true",
		"--profiling=false",
		"--authorization-mode=Node,RBAC",
		"--authentication-config=" + files.authentication,
		"--enable-admission-plugins=NodeRestriction",
		"--client-ca-file=" + files.authority,
		"--tls-cert-file=" + files.server,
		"--tls-private-key-file=" + files.serverKey,
		"--service-account-issuer=https://kubernetes.default.svc.cluster.local",
		"--service-account-key-file=" + files.accounts,
		"--service-account-signing-key-file=" + files.accountsKey,
		"--requestheader-client-ca-file=" + files.proxyAuthority,
		"--requestheader-allowed-names=" + frontProxy,
		"--requestheader-username-headers=X-Remote-User",
		"--requestheader-group-headers=X-Remote-Group",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-",
		"--proxy-client-cert-file=" + files.proxy,
		"--proxy-client-key-file=" + files.proxyKey,
		"--kubelet-certificate-authority=" + files.authority,
		"--kubelet-client-certificate=" + files.kubeletClient,
		"--kubelet-client-key=" + files.kubeletClientKey,
		"--kubelet-preferred-address-types=InternalIP",
	}
	arguments = append(arguments, site.audit.arguments()...)
	if err := parse(opts.Flags(), arguments); err != nil {
		return err
	}
	if err := opts.GenericServerRunOptions.ComponentGlobalsRegistry.Set(); err != nil {
		return err
	}
	opts.SecureServing.Listener = listener
	opts.SecureServing.BindPort = listener.Addr().(*net.TCPAddr).Port
	completed, err := opts.Complete(tasks.ctx)
	if err != nil {
		return err
	}
	if errs := completed.Validate(); len(errs) > 0 {
		return utilerrors.NewAggregate(errs)
	}
	tasks.start("kube-apiserver", func(ctx context.Context) error { return app.Run(ctx, completed) })
	return nil
}
