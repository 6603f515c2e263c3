package main

import (
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strings"
)

// site describes the location of the cluster.
type site struct {
	// address is the listen address of the API server.
	address string
	// volumes is the directory of volumes on the nodes.
	volumes string
	// nodes have real kubelets. Without any, there is a simulated node.
	nodes []node
	// audit is the audit log. Without a policy, there is none.
	audit audit
}

// audit names the files of an audit log.
type audit struct {
	policy string
	log    string
}

type node struct {
	name    string
	address net.IP
}

// parseSite parses the options of the command line.
func parseSite(address, volumes, nodes string) (site, error) {
	s := site{address: address, volumes: volumes}
	host, _, err := net.SplitHostPort(address)
	if err != nil || net.ParseIP(host) == nil {
		return s, fmt.Errorf("--address %q: it is ADDRESS:PORT", address)
	}
	for part := range strings.SplitSeq(nodes, ",") {
		if part == "" {
			continue
		}
		name, at, _ := strings.Cut(part, "=")
		ip := net.ParseIP(at)
		if name == "" || ip == nil {
			return s, fmt.Errorf("--nodes %q: each is NAME=ADDRESS", part)
		}
		s.nodes = append(s.nodes, node{name: name, address: ip})
	}
	return s, nil
}

// parseAudit parses the options of the audit log.
func parseAudit(policy, log string) (audit, error) {
	if policy == "" && log == "" {
		return audit{}, nil
	}
	if policy == "" || log == "" {
		return audit{}, errors.New("--audit-policy and --audit-log need each other")
	}
	absolute, err := filepath.Abs(log)
	return audit{policy: policy, log: absolute}, err
}

// arguments returns the options of the API server. The log has one file, because its reader follows no rotation.
func (a audit) arguments() []string {
	if a.policy == "" {
		return nil
	}
	return []string{
		"--audit-policy-file=" + a.policy,
		"--audit-log-path=" + a.log,
		"--audit-log-mode=blocking",
		"--audit-log-maxsize=0",
	}
}

// addresses returns the addresses of the API server.
func (s site) addresses() []net.IP {
	host, _, _ := net.SplitHostPort(s.address)
	return []net.IP{net.ParseIP(host)}
}

// advertised returns the address in the Endpoints of the API server's Service. The API refuses loopback addresses, so
// those are replaced by an address that is reserved for examples.
func (s site) advertised(listener net.Listener) string {
	if ip := listener.Addr().(*net.TCPAddr).IP; !ip.IsLoopback() {
		return ip.String()
	}
	return "192.0.2.1"
}

// writeKubeconfigs writes the kubeconfigs of kubelets and kube-proxies.
func (s site) writeKubeconfigs(dir, server string, files files) error {
	names := []string{"kube-proxy"}
	for _, node := range s.nodes {
		names = append(names, node.name)
	}
	for _, name := range names {
		path := filepath.Join(dir, "pki", name)
		if err := writeKubeconfig(path+".kubeconfig", server, files.authority, path+".crt", path+".key"); err != nil {
			return err
		}
	}
	return nil
}
