package main

import (
	"context"
	"fmt"
	"net"
	"path/filepath"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	cliflag "k8s.io/component-base/cli/flag"

	"github.com/spf13/pflag"
)

var (
	loopback = net.IPv4(127, 0, 0, 1)
	// serviceAddress is the first Service address, which is the API server's.
	serviceAddress = net.IPv4(10, 96, 0, 1)
)

// startComponents starts all components after etcd. It returns the path of the kubeconfig when the cluster is ready.
func startComponents(ctx context.Context, tasks *tasks, dir string, site site, files files, etcd *embed.Etcd) (string, error) {
	listener, err := net.Listen("tcp", site.address)
	if err != nil {
		return "", err
	}
	server := "https://" + listener.Addr().String()
	admin := filepath.Join(dir, "kubeconfig")
	controllers := filepath.Join(dir, "pki", "controller-manager.kubeconfig")
	scheduler := filepath.Join(dir, "pki", "scheduler.kubeconfig")
	for _, config := range []struct{ path, certificate, key string }{
		{admin, files.admin, files.adminKey},
		{controllers, files.controllers, files.controllersKey},
		{scheduler, files.scheduler, files.schedulerKey},
	} {
		if err := writeKubeconfig(config.path, server, files.authority, config.certificate, config.key); err != nil {
			return "", err
		}
	}
	if err := site.writeKubeconfigs(dir, server, files); err != nil {
		return "", err
	}
	client, err := adminClient(admin)
	if err != nil {
		return "", err
	}

	if err := startAPIServer(tasks, listener, site, files, etcd); err != nil {
		return "", fmt.Errorf("starting kube-apiserver: %w", err)
	}
	if err := until(ctx, tasks, "the API server to be ready", func(ctx context.Context) error {
		return client.CoreV1().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error()
	}); err != nil {
		return "", err
	}
	if err := startControllers(tasks, controllers, files); err != nil {
		return "", fmt.Errorf("starting kube-controller-manager: %w", err)
	}
	if err := startScheduler(tasks, dir, scheduler); err != nil {
		return "", fmt.Errorf("starting kube-scheduler: %w", err)
	}
	if len(site.nodes) == 0 {
		if err := startNode(ctx, tasks, client, files); err != nil {
			return "", fmt.Errorf("starting the node: %w", err)
		}
	}
	tasks.start("the provisioner of volumes", func(ctx context.Context) error { return provisionVolumes(ctx, client, site) })
	return admin, until(ctx, tasks, "the ServiceAccount of namespace default", func(ctx context.Context) error {
		_, err := client.CoreV1().ServiceAccounts(metav1.NamespaceDefault).Get(ctx, "default", metav1.GetOptions{})
		return err
	})
}

// adminClient returns an administrator's client without rate limits.
func adminClient(kubeconfig string) (kubernetes.Interface, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, err
	}
	config.UserAgent = "kubelet"
	config.QPS = -1
	return kubernetes.NewForConfig(rest.AddUserAgent(config, "mainstay-real-cluster"))
}

// until waits until a check succeeds.
func until(ctx context.Context, tasks *tasks, what string, isSo func(context.Context) error) error {
	var last error
	for {
		if last = isSo(ctx); last == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waited in vain for %s: %w", what, last)
		case err := <-tasks.failed:
			return err
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// parse sets the options of a component as on its command line.
func parse(sets cliflag.NamedFlagSets, arguments []string) error {
	all := pflag.NewFlagSet("options", pflag.ContinueOnError)
	for _, set := range sets.FlagSets {
		all.AddFlagSet(set)
	}
	return all.Parse(arguments)
}
