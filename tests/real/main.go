// Command mainstay-real-cluster starts a real Kubernetes control plane on loopback for tests.
//
//	mainstay-real-cluster start --dir DIR [--until-stdin-closes] [--audit-policy FILE --audit-log FILE] [--address HOST:PORT --volumes DIR --nodes NAME=ADDRESS,…]
//
// etcd, kube-apiserver, kube-controller-manager and kube-scheduler run as libraries in this process, with the usual
// options: RBAC and Node authorization, the default admission plugins, ServiceAccount tokens, aggregation. DIR
// contains certificates, keys, data and logs. When the API server, the controllers and the node are ready, it prints
// "ready DIR/kubeconfig", the kubeconfig of a member of system:masters. It ends on SIGTERM, SIGINT, or with
// --until-stdin-closes at the end of its standard input, and leaves no process behind. The data does not survive a
// crash, because etcd does not wait for the disk.
//
// There is one node, "node", without containers; kubelet.go simulates its kubelet. A pod with restartPolicy Always is
// Running and Ready at once. The containers of other pods exit with 0 after 100 ms. A deleted pod is removed at once,
// regardless of its grace period. Other outcomes are configured
//
//   - by the pod's annotation devcluster.dev/outcome: never-ready, image-pull-backoff, crash-loop, exit:CODE, or
//     pending (the scheduler finds no node); images of a registry "….invalid" cannot be pulled;
//   - by ConfigMaps in kube-system with the label devcluster.dev/outcomes (see outcomes.go).
//
// Every PersistentVolumeClaim gets its own volume.
//
// The API server trusts the issuers of OpenID Connect in DIR/authentication.yaml, and reads changes of the file.
//
// kubectl logs, exec, attach and port-forward work (see streaming.go).
//
// With --nodes there is no simulated node. Real kubelets join with DIR/pki/NAME.{crt,key,kubeconfig} and
// DIR/pki/kube-proxy.kubeconfig. They reach the API server at --address, and volumes are directories in --volumes.
//
// With --audit-log, the API server writes the requests that --audit-policy selects to this file, which is never rotated.
// Each record is written immediately.
//
// Not here: containers, images, contents of volumes, pod networking, cloud providers, high availability.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
)

const usage = "usage: mainstay-real-cluster start --dir DIR [--until-stdin-closes] [--audit-policy FILE --audit-log FILE] [--address HOST:PORT --volumes DIR --nodes NAME=ADDRESS,…]"

// patience is the deadline of the cluster's start.
const patience = 2 * time.Minute

// farewell is the deadline of the components' end.
const farewell = 5 * time.Second

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "mainstay-real-cluster:", err)
		os.Exit(1)
	}
}

func run(arguments []string) error {
	if len(arguments) == 0 || arguments[0] != "start" {
		return errors.New(usage)
	}
	flags := flag.NewFlagSet("start", flag.ContinueOnError)
	dir := flags.String("dir", "", "directory for certificates, data, logs and the kubeconfig")
	untilStdinCloses := flags.Bool("until-stdin-closes", false, "end when the standard input ends")
	address := flags.String("address", net.JoinHostPort(loopback.String(), "0"), "address of the API server")
	volumes := flags.String("volumes", "/simulated", "directory of volumes on the nodes")
	nodes := flags.String("nodes", "", "names and addresses of the nodes whose kubelets join, instead of a simulated one")
	auditPolicy := flags.String("audit-policy", "", "policy of the audit log")
	auditLog := flags.String("audit-log", "", "file of the API server's audit log; by default none")
	if err := flags.Parse(arguments[1:]); err != nil {
		return err
	}
	if *dir == "" || flags.NArg() > 0 {
		return errors.New(usage)
	}
	site, err := parseSite(*address, *volumes, *nodes)
	if err != nil {
		return err
	}
	if site.audit, err = parseAudit(*auditPolicy, *auditLog); err != nil {
		return err
	}
	absolute, err := filepath.Abs(*dir)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(absolute, 0o700); err != nil {
		return err
	}
	ctx, end := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer end()
	if *untilStdinCloses {
		go func() {
			_, _ = io.Copy(io.Discard, os.Stdin)
			end()
		}()
	}
	return cluster(ctx, absolute, site)
}

// cluster starts all components, prints the kubeconfig, and waits for the end.
func cluster(ctx context.Context, dir string, site site) error {
	if err := logTo(filepath.Join(dir, "cluster.log")); err != nil {
		return err
	}
	defer klog.Flush()
	rest.SetDefaultWarningHandler(rest.NoWarnings{})
	files, err := writeFiles(dir, site)
	if err != nil {
		return fmt.Errorf("writing certificates: %w", err)
	}
	etcd, err := startEtcd(dir)
	if err != nil {
		return fmt.Errorf("starting etcd: %w", err)
	}
	defer etcd.Close()

	components, stop := context.WithCancel(context.Background())
	defer stop()
	tasks := newTasks(components)
	starting, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	ready, err := startComponents(starting, tasks, dir, site, files, etcd)
	if err != nil {
		return fmt.Errorf("%w; see %s", err, filepath.Join(dir, "cluster.log"))
	}
	fmt.Println("ready", ready)

	select {
	case <-ctx.Done():
		stop()
		tasks.wait(farewell)
		return nil
	case err := <-tasks.failed:
		return fmt.Errorf("%w; see %s", err, filepath.Join(dir, "cluster.log"))
	}
}

// logTo redirects the components' logs to a file.
func logTo(path string) error {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	flags := flag.NewFlagSet("log", flag.ContinueOnError)
	klog.InitFlags(flags)
	for name, value := range map[string]string{"logtostderr": "false", "alsologtostderr": "false", "stderrthreshold": "FATAL", "one_output": "true"} {
		if err := flags.Set(name, value); err != nil {
			return err
		}
	}
	klog.SetOutput(file)
	return nil
}
