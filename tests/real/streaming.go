package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/cri-streaming/pkg/streaming/portforward"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
	utilexec "k8s.io/utils/exec"
)

// streaming.go is the kubelet's server. Only the API server has a client certificate for it.
//
//   - logs: the log of the container's entry (see outcomes.go), or else one line with its name
//   - exec: the command runs as a process of this machine and this user, in an empty directory
//   - attach: the standard input is echoed to the standard output
//   - port-forward: a port forwards to the same port of this machine's loopback address, if a container declares it

// idle is the maximum silence of a stream.
const idle = time.Hour

// serve serves a listener until the context ends.
func (k *kubelet) serve(ctx context.Context, listener net.Listener, files files) error {
	certificate, err := tls.LoadX509KeyPair(files.kubelet, files.kubeletKey)
	if err != nil {
		return err
	}
	authority, err := os.ReadFile(files.authority)
	if err != nil {
		return err
	}
	clients := x509.NewCertPool()
	if !clients.AppendCertsFromPEM(authority) {
		return errors.New("the certificate authority is not readable")
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /containerLogs/{namespace}/{pod}/{container}", k.logs)
	mux.HandleFunc("/exec/{namespace}/{pod}/{container}", k.exec)
	mux.HandleFunc("/attach/{namespace}/{pod}/{container}", k.attach)
	mux.HandleFunc("/portForward/{namespace}/{pod}", k.portForward)
	server := &http.Server{
		Handler: onlyAPIServer(mux),
		TLSConfig: &tls.Config{
			Certificates: []tls.Certificate{certificate}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: clients,
			MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"},
		},
		ReadHeaderTimeout: 10 * time.Second,
	}
	go func() {
		<-ctx.Done()
		_ = server.Close()
	}()
	return server.ServeTLS(listener, "", "")
}

func onlyAPIServer(inner http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.TLS == nil || len(r.TLS.PeerCertificates) == 0 || r.TLS.PeerCertificates[0].Subject.CommonName != kubeletClient {
			http.Error(w, "Forbidden", http.StatusForbidden)
			return
		}
		inner.ServeHTTP(w, r)
	})
}

// pod returns the pod of a request, or answers that it does not exist.
func (k *kubelet) pod(w http.ResponseWriter, r *http.Request) *v1.Pod {
	pod, err := k.pods.Pods(r.PathValue("namespace")).Get(r.PathValue("pod"))
	if err != nil {
		http.Error(w, "pod does not exist", http.StatusNotFound)
		return nil
	}
	return pod
}

// container returns the container of a request, or answers that it does not exist.
func (k *kubelet) container(w http.ResponseWriter, r *http.Request) (*v1.Pod, *v1.Container) {
	pod := k.pod(w, r)
	if pod == nil {
		return nil, nil
	}
	all := append(append([]v1.Container{}, pod.Spec.InitContainers...), pod.Spec.Containers...)
	for i := range all {
		if all[i].Name == r.PathValue("container") {
			return pod, &all[i]
		}
	}
	http.Error(w, fmt.Sprintf("container %s is not valid for pod %s", r.PathValue("container"), pod.Name), http.StatusNotFound)
	return nil, nil
}

func (k *kubelet) logs(w http.ResponseWriter, r *http.Request) {
	pod, container := k.container(w, r)
	if container == nil {
		return
	}
	for _, status := range append(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses...) {
		if status.Name == container.Name && status.State.Waiting != nil && status.LastTerminationState.Terminated == nil {
			message := fmt.Sprintf("container %q in pod %q is waiting to start: %s", container.Name, pod.Name, status.State.Waiting.Reason)
			http.Error(w, message, http.StatusBadRequest)
			return
		}
	}
	lines := strings.SplitAfter(k.outcomes.logOf(pod, *container), "\n")
	if lines[len(lines)-1] == "" {
		lines = lines[:len(lines)-1]
	}
	if tail, err := strconv.Atoi(r.FormValue("tailLines")); err == nil && tail >= 0 && tail < len(lines) {
		lines = lines[len(lines)-tail:]
	}
	var log bytes.Buffer
	for _, line := range lines {
		if r.FormValue("timestamps") == "true" && pod.Status.StartTime != nil {
			log.WriteString(pod.Status.StartTime.UTC().Format(time.RFC3339Nano) + " ")
		}
		log.WriteString(line)
	}
	if limit, err := strconv.Atoi(r.FormValue("limitBytes")); err == nil && limit >= 0 && limit < log.Len() {
		log.Truncate(limit)
	}
	w.Header().Set("Content-Type", "text/plain")
	_, _ = w.Write(log.Bytes())
	if r.FormValue("follow") == "true" {
		_ = http.NewResponseController(w).Flush()
		k.untilEnded(r.Context(), pod, container.Name)
	}
}

// untilEnded waits until a container has finished.
func (k *kubelet) untilEnded(ctx context.Context, pod *v1.Pod, container string) {
	for {
		now, err := k.pods.Pods(pod.Namespace).Get(pod.Name)
		if err != nil || now.UID != pod.UID {
			return
		}
		for _, status := range append(now.Status.InitContainerStatuses, now.Status.ContainerStatuses...) {
			if status.Name == container && status.State.Running == nil {
				return
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func (k *kubelet) exec(w http.ResponseWriter, r *http.Request) {
	pod, container := k.container(w, r)
	if container == nil {
		return
	}
	options, err := remotecommand.NewOptions(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	remotecommand.ServeExec(w, r, commands{}, pod.Name, string(pod.UID), container.Name, r.Form["command"], options, idle,
		remotecommand.DefaultStreamCreationTimeout, remotecommand.SupportedStreamingProtocols)
}

func (k *kubelet) attach(w http.ResponseWriter, r *http.Request) {
	pod, container := k.container(w, r)
	if container == nil {
		return
	}
	options, err := remotecommand.NewOptions(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	remotecommand.ServeAttach(w, r, commands{}, pod.Name, string(pod.UID), container.Name, options, idle,
		remotecommand.DefaultStreamCreationTimeout, remotecommand.SupportedStreamingProtocols)
}

// commands runs commands as processes of this machine.
type commands struct{}

func (commands) ExecInContainer(ctx context.Context, _, _, _ string, command []string, in io.Reader, out, err io.WriteCloser, _ bool, _ <-chan remotecommand.TerminalSize, _ time.Duration) error {
	if len(command) == 0 {
		return errors.New("no command is given")
	}
	dir, failed := os.MkdirTemp("", "exec")
	if failed != nil {
		return failed
	}
	defer func() { _ = os.RemoveAll(dir) }()
	process := exec.CommandContext(ctx, command[0], command[1:]...)
	process.Dir = dir
	process.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir}
	if out != nil {
		process.Stdout = out
	}
	process.Stderr = process.Stdout
	if err != nil {
		process.Stderr = err
	}
	if in != nil {
		// Not process.Stdin: the end of the process must not wait for the end of the input.
		stdin, failed := process.StdinPipe()
		if failed != nil {
			return failed
		}
		go func() {
			_, _ = io.Copy(stdin, in)
			_ = stdin.Close()
		}()
	}
	process.WaitDelay = time.Second
	failed = process.Run()
	var exit *exec.ExitError
	if errors.As(failed, &exit) && exit.ExitCode() >= 0 {
		return utilexec.CodeExitError{Err: fmt.Errorf("exit status %d", exit.ExitCode()), Code: exit.ExitCode()}
	}
	return failed
}

func (commands) AttachContainer(_ context.Context, _, _, _ string, in io.Reader, out, _ io.WriteCloser, _ bool, _ <-chan remotecommand.TerminalSize) error {
	if in == nil || out == nil {
		return nil
	}
	_, err := io.Copy(out, in)
	return err
}

func (k *kubelet) portForward(w http.ResponseWriter, r *http.Request) {
	pod := k.pod(w, r)
	if pod == nil {
		return
	}
	options, err := portforward.NewV4Options(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	portforward.ServePortForward(w, r, forwarder{pod}, pod.Name, string(pod.UID), options, idle,
		remotecommand.DefaultStreamCreationTimeout, portforward.SupportedProtocols)
}

// forwarder connects to loopback.
type forwarder struct{ pod *v1.Pod }

func (f forwarder) PortForward(ctx context.Context, _, _ string, port int32, stream io.ReadWriteCloser) error {
	if !declares(f.pod, port) {
		return fmt.Errorf("no container of pod %s/%s declares port %d", f.pod.Namespace, f.pod.Name, port)
	}
	var dialer net.Dialer
	connection, err := dialer.DialContext(ctx, "tcp", net.JoinHostPort(loopback.String(), strconv.Itoa(int(port))))
	if err != nil {
		return err
	}
	defer func() { _ = connection.Close() }()
	answered := make(chan error, 1)
	go func() {
		_, err := io.Copy(stream, connection)
		answered <- err
	}()
	asked := make(chan error, 1)
	go func() {
		_, err := io.Copy(connection, stream)
		_ = connection.(*net.TCPConn).CloseWrite()
		asked <- err
	}()
	select {
	case err := <-answered:
		return err
	case err := <-asked:
		if err != nil {
			return err
		}
		return <-answered
	}
}

func declares(pod *v1.Pod, port int32) bool {
	for _, container := range pod.Spec.Containers {
		for _, declared := range container.Ports {
			if declared.ContainerPort == port {
				return true
			}
		}
	}
	return false
}
