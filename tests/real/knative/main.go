// Command mainstay-real-knative runs Knative Serving beside a control plane of tests, as processes of this machine:
//
//	mainstay-real-knative --kubeconfig FILE --webhook-port PORT --logs DIR
//
// The webhook, controller and autoscaler are the project's own; their binaries are beside this program. Their CRDs and
// configuration must be in the cluster. All processes end when the standard input of this program closes.
//
// Ingresses are simulated: each is ready at once for clients in the mesh.
//
// Not here: the activator and queue-proxy. Addresses have no backend, so no request is held or counted.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	"knative.dev/networking/pkg/apis/networking/v1alpha1"
	clientset "knative.dev/networking/pkg/client/clientset/versioned"
)

// The processes. The autoscaler always listens on 8080.
var processes = []string{"webhook", "controller", "autoscaler"}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "mainstay-real-knative:", err)
		os.Exit(1)
	}
}

func run() error {
	kubeconfig := flag.String("kubeconfig", "", "kubeconfig of an administrator")
	port := flag.Int("webhook-port", 0, "port of the webhook; six after it are taken, too, and 8080")
	logs := flag.String("logs", "", "directory for what the processes log")
	flag.Parse()
	config, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	if err != nil {
		return err
	}
	client, err := clientset.NewForConfig(config)
	if err != nil {
		return err
	}
	ctx, end := context.WithCancel(context.Background())
	defer end()
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		end()
	}()
	self, err := os.Executable()
	if err != nil {
		return err
	}
	if err := awaitPort(":8080"); err != nil {
		return err
	}
	ended := make(chan error, len(processes))
	running := 0
	for at, name := range processes {
		command := exec.CommandContext(ctx, filepath.Join(filepath.Dir(self), name))
		log, err := os.Create(filepath.Join(*logs, name+".log"))
		if err != nil {
			return err
		}
		defer log.Close()
		command.Stdout, command.Stderr = log, log
		command.Env = environment(name, *kubeconfig, *port, at)
		if err := command.Start(); err != nil {
			end()
			return err
		}
		running++
		go func() { ended <- fmt.Errorf("the %s ended: %v; see %s", name, command.Wait(), log.Name()) }()
	}
	go programIngresses(ctx, client)
	err = nil
	for range running {
		if why := <-ended; ctx.Err() == nil {
			err = why
			end()
		}
	}
	return err
}

// awaitPort waits until an address is free. Without it the autoscaler would continue, but do nothing.
func awaitPort(address string) error {
	for tries := 0; ; tries++ {
		listener, err := net.Listen("tcp", address)
		if err == nil {
			return listener.Close()
		}
		if tries == 300 {
			return fmt.Errorf("the autoscaler of Knative needs the port: %w", err)
		}
		time.Sleep(200 * time.Millisecond)
	}
}

func environment(name, kubeconfig string, port, at int) []string {
	all := []string{
		"KUBECONFIG=" + kubeconfig,
		"SYSTEM_NAMESPACE=knative-serving",
		"POD_NAME=" + name,
		// EndpointSlices must not contain loopback addresses.
		"POD_IP=192.0.2.2",
		"CONFIG_LOGGING_NAME=config-logging",
		"CONFIG_OBSERVABILITY_NAME=config-observability",
		"KNATIVE_HEALTH_PROBES_PORT=" + strconv.Itoa(port+1+2*at),
		"PROFILING_PORT=" + strconv.Itoa(port+2+2*at),
	}
	if name == "webhook" {
		all = append(all, "WEBHOOK_NAME=webhook", "WEBHOOK_PORT="+strconv.Itoa(port))
	}
	return all
}

// programIngresses marks every Ingress as programmed until the context ends.
func programIngresses(ctx context.Context, client *clientset.Clientset) {
	for ctx.Err() == nil {
		if err := watchIngresses(ctx, client); err != nil && ctx.Err() == nil {
			fmt.Fprintln(os.Stderr, "ingresses:", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func watchIngresses(ctx context.Context, client *clientset.Clientset) error {
	list, err := client.NetworkingV1alpha1().Ingresses("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for i := range list.Items {
		program(ctx, client, &list.Items[i])
	}
	watch, err := client.NetworkingV1alpha1().Ingresses("").Watch(ctx, metav1.ListOptions{ResourceVersion: list.ResourceVersion})
	if err != nil {
		return err
	}
	defer watch.Stop()
	for event := range watch.ResultChan() {
		if ingress, ok := event.Object.(*v1alpha1.Ingress); ok && event.Type != "DELETED" {
			program(ctx, client, ingress)
		}
	}
	return nil
}

func program(ctx context.Context, client *clientset.Clientset, seen *v1alpha1.Ingress) {
	if seen.Status.ObservedGeneration == seen.Generation && seen.IsReady() || seen.DeletionTimestamp != nil {
		return
	}
	ingress := seen.DeepCopy()
	ingress.Status.InitializeConditions()
	ingress.Status.MarkNetworkConfigured()
	mesh := []v1alpha1.LoadBalancerIngressStatus{{MeshOnly: true}}
	ingress.Status.MarkLoadBalancerReady(mesh, mesh)
	ingress.Status.ObservedGeneration = ingress.Generation
	// A conflict is followed by another event.
	_, _ = client.NetworkingV1alpha1().Ingresses(ingress.Namespace).UpdateStatus(ctx, ingress, metav1.UpdateOptions{})
}
