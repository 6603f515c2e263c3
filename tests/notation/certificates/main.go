// Makes the keys and certificates of ../make in a directory. They are valid from 2020 to 2120.
package main

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"log"
	"math/big"
	"os"
	"path/filepath"
	"time"
)

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func template(name string, number int64) *x509.Certificate {
	return &x509.Certificate{
		SerialNumber: big.NewInt(number),
		Subject: pkix.Name{
			Country: []string{"US"}, Province: []string{"WA"}, Locality: []string{"Seattle"},
			Organization: []string{"Example"}, CommonName: name,
		},
		NotBefore:             time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC),
		NotAfter:              time.Date(2120, 1, 1, 0, 0, 0, 0, time.UTC),
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageDigitalSignature,
	}
}

func onCurve(curve elliptic.Curve) crypto.Signer {
	key, err := ecdsa.GenerateKey(curve, rand.Reader)
	check(err)
	return key
}

// Writes a key, and a certificate with those above it, and returns the certificate.
func write(name string, key crypto.Signer, made, issuer *x509.Certificate, by crypto.Signer, above ...*x509.Certificate) *x509.Certificate {
	der, err := x509.CreateCertificate(rand.Reader, made, issuer, key.Public(), by)
	check(err)
	certificate, err := x509.ParseCertificate(der)
	check(err)
	encoded, err := x509.MarshalPKCS8PrivateKey(key)
	check(err)
	path := filepath.Join(os.Args[1], name)
	check(os.WriteFile(path+".key", pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: encoded}), 0o600))
	var chain []byte
	for _, one := range append([]*x509.Certificate{certificate}, above...) {
		chain = append(chain, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: one.Raw})...)
	}
	check(os.WriteFile(path+".crt", chain, 0o600))
	return certificate
}

func root(name string, number int64) (*x509.Certificate, crypto.Signer) {
	key, made := onCurve(elliptic.P384()), template(name, number)
	made.IsCA, made.KeyUsage = true, x509.KeyUsageCertSign|x509.KeyUsageCRLSign
	return write(name, key, made, made, key), key
}

func main() {
	trusted, by := root("root", 1)
	root("stranger", 2)
	for name, curve := range map[string]elliptic.Curve{"jws": elliptic.P256(), "cose": elliptic.P384(), "p521": elliptic.P521()} {
		made := template(name, 3)
		made.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageCodeSigning}
		write(name, onCurve(curve), made, trusted, by, trusted)
	}
	key, err := rsa.GenerateKey(rand.Reader, 3072)
	check(err)
	alone := template("rsa", 4)
	write("rsa", key, alone, alone, key)
}
