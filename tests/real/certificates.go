package main

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// kubeletClient is the API server's user name at the kubelet, which accepts no other one.
const kubeletClient = "kube-apiserver-kubelet-client"

// frontProxy is the API server's user name at aggregated API servers.
const frontProxy = "front-proxy-client"

// files are the paths of certificates and keys.
type files struct {
	authority, authorityKey           string
	server, serverKey                 string
	admin, adminKey                   string
	controllers, controllersKey       string
	scheduler, schedulerKey           string
	kubelet, kubeletKey               string
	kubeletClient, kubeletClientKey   string
	proxyAuthority, proxyAuthorityKey string
	proxy, proxyKey                   string
	accounts, accountsKey             string
	// The issuers of OpenID Connect that the API server trusts: none at first. Tests replace the file.
	authentication string
}

// noIssuers is an AuthenticationConfiguration without issuers.
const noIssuers = "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthenticationConfiguration\njwt: []\n"

// issuer is a certificate authority.
type issuer struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

// writeFiles creates all certificates and keys.
func writeFiles(dir string, site site) (files, error) {
	w := writer{dir: filepath.Join(dir, "pki")}
	if err := os.MkdirAll(w.dir, 0o700); err != nil {
		return files{}, err
	}
	var f files
	var authority, proxies issuer
	authority, f.authority, f.authorityKey = w.authority("ca", "kubernetes")
	proxies, f.proxyAuthority, f.proxyAuthorityKey = w.authority("front-proxy-ca", "front-proxy-ca")
	client := func(file, name string, groups ...string) (string, string) {
		return w.leaf(authority, file, x509.Certificate{
			Subject:     pkix.Name{CommonName: name, Organization: groups},
			ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		})
	}
	serving := func(file, name string, hosts []string, addresses ...net.IP) (string, string) {
		return w.leaf(authority, file, x509.Certificate{
			Subject:     pkix.Name{CommonName: name},
			DNSNames:    hosts,
			IPAddresses: addresses,
			ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		})
	}
	hosts := []string{
		"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local",
	}
	f.server, f.serverKey = serving("apiserver", "kube-apiserver", hosts, append(site.addresses(), loopback, serviceAddress)...)
	f.kubelet, f.kubeletKey = serving("kubelet", "system:node:"+nodeName, []string{nodeName}, loopback)
	for _, node := range site.nodes {
		// The certificate is the kubelet's server and client certificate.
		w.leaf(authority, node.name, x509.Certificate{
			Subject:     pkix.Name{CommonName: "system:node:" + node.name, Organization: []string{"system:nodes"}},
			DNSNames:    []string{node.name},
			IPAddresses: []net.IP{node.address},
			ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
		})
	}
	client("kube-proxy", "system:kube-proxy")
	f.admin, f.adminKey = client("admin", "kubernetes-admin", "system:masters")
	f.controllers, f.controllersKey = client("controller-manager", "system:kube-controller-manager")
	f.scheduler, f.schedulerKey = client("scheduler", "system:kube-scheduler")
	f.kubeletClient, f.kubeletClientKey = client("apiserver-kubelet-client", kubeletClient)
	f.proxy, f.proxyKey = w.leaf(proxies, "front-proxy-client", x509.Certificate{
		Subject:     pkix.Name{CommonName: frontProxy},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	f.accounts, f.accountsKey = w.pair("service-accounts")
	f.authentication = filepath.Join(dir, "authentication.yaml")
	w.note(os.WriteFile(f.authentication, []byte(noIssuers), 0o600))
	return f, w.err
}

// writer writes keys and certificates and keeps the first error.
type writer struct {
	dir string
	err error
}

func (w *writer) note(err error) {
	if w.err == nil {
		w.err = err
	}
}

func (w *writer) pem(file, kind string, der []byte) string {
	path := filepath.Join(w.dir, file)
	if w.err == nil {
		w.note(os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600))
	}
	return path
}

func (w *writer) key(file string) (*ecdsa.PrivateKey, string) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		w.note(err)
		return nil, ""
	}
	der, err := x509.MarshalECPrivateKey(key)
	w.note(err)
	return key, w.pem(file+".key", "EC PRIVATE KEY", der)
}

func (w *writer) sign(template x509.Certificate, parent *x509.Certificate, public crypto.PublicKey, key crypto.Signer) []byte {
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	w.note(err)
	template.SerialNumber = serial
	template.NotBefore = time.Now().Add(-time.Hour)
	template.NotAfter = time.Now().Add(365 * 24 * time.Hour)
	template.KeyUsage |= x509.KeyUsageDigitalSignature
	template.BasicConstraintsValid = true
	if parent == nil {
		parent = &template
	}
	der, err := x509.CreateCertificate(rand.Reader, &template, parent, public, key)
	w.note(err)
	return der
}

func (w *writer) authority(file, name string) (issuer, string, string) {
	key, keyPath := w.key(file)
	if w.err != nil {
		return issuer{}, "", ""
	}
	template := x509.Certificate{Subject: pkix.Name{CommonName: name}, IsCA: true, KeyUsage: x509.KeyUsageCertSign}
	der := w.sign(template, nil, key.Public(), key)
	certificate, err := x509.ParseCertificate(der)
	w.note(err)
	return issuer{certificate, key}, w.pem(file+".crt", "CERTIFICATE", der), keyPath
}

func (w *writer) leaf(by issuer, file string, template x509.Certificate) (string, string) {
	key, keyPath := w.key(file)
	if w.err != nil {
		return "", ""
	}
	return w.pem(file+".crt", "CERTIFICATE", w.sign(template, by.certificate, key.Public(), by.key)), keyPath
}

// pair creates a key pair without a certificate.
func (w *writer) pair(file string) (string, string) {
	key, keyPath := w.key(file)
	if w.err != nil {
		return "", ""
	}
	der, err := x509.MarshalPKIXPublicKey(key.Public())
	w.note(err)
	return w.pem(file+".pub", "PUBLIC KEY", der), keyPath
}

// writeKubeconfig writes a self-contained kubeconfig.
func writeKubeconfig(path, server, authority, certificate, key string) error {
	read := func(path string) []byte {
		content, err := os.ReadFile(path)
		if err != nil {
			return nil
		}
		return content
	}
	const name = "mainstay-real-cluster"
	config := clientcmdapi.NewConfig()
	config.Clusters[name] = &clientcmdapi.Cluster{Server: server, CertificateAuthorityData: read(authority)}
	config.AuthInfos[name] = &clientcmdapi.AuthInfo{ClientCertificateData: read(certificate), ClientKeyData: read(key)}
	config.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	config.CurrentContext = name
	return clientcmd.WriteToFile(*config, path)
}
