// Makes keyless signatures as cosign stores them, with a certificate authority and logs of its own. `make` runs it.
//
// It writes an artifact with a signature in the format of cosign 2 (`simple`), one in that of cosign 3 with a log of Rekor 1
// (`bundle`), and one with a log of Rekor 2 and the timestamp of an authority (`stamped`). It also writes the trusted roots
// of this instance and of a stranger, and signatures that must be refused (`hostile.json`).
package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	timestamps "github.com/digitorus/timestamp"
)

const (
	subject = "https://ci.example.org/shop/web/release.yaml@refs/heads/main"
	issuer  = "https://ci.example.org"
	sign    = "https://sigstore.dev/cosign/sign/v1"
	image   = "application/vnd.oci.image.manifest.v1+json"
	sigType = "application/vnd.dev.sigstore.bundle.v0.3+json"
	index   = 7
	tiles   = "tiles.example.org"
)

// The time of all signatures. The certificates of signers begin a minute earlier, and are valid for ten minutes.
var signed = time.Date(2025, 6, 1, 12, 0, 0, 0, time.UTC)

type object = map[string]any

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

func encode(value any) []byte {
	var written bytes.Buffer
	encoder := json.NewEncoder(&written)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		panic(err)
	}
	return bytes.TrimSpace(written.Bytes())
}

func text(data []byte) string { return base64.StdEncoding.EncodeToString(data) }

func digest(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

func newKey() *ecdsa.PrivateKey { return must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader)) }

func public(key *ecdsa.PrivateKey) []byte { return must(x509.MarshalPKIXPublicKey(&key.PublicKey)) }

func signature(key *ecdsa.PrivateKey, data []byte) []byte {
	sum := sha256.Sum256(data)
	return must(ecdsa.SignASN1(rand.Reader, key, sum[:]))
}

// An authority or a signer with its certificate.
type holder struct {
	key         *ecdsa.PrivateKey
	certificate *x509.Certificate
}

func (one holder) pem() string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: one.certificate.Raw}))
}

// An instance of Sigstore: authorities that issue certificates and timestamps, the log of certificates, and two logs of
// signatures.
type instance struct {
	root, authority, clock holder
	issued, log            *ecdsa.PrivateKey
	tiles                  ed25519.PrivateKey
}

func newInstance() instance {
	root, authority, clock := newKey(), newKey(), newKey()
	template := func(name string, number int64, path int) *x509.Certificate {
		return &x509.Certificate{
			SerialNumber: big.NewInt(number), Subject: pkix.Name{Organization: []string{"example.org"}, CommonName: name},
			NotBefore: signed.AddDate(-1, 0, 0), NotAfter: signed.AddDate(20, 0, 0), IsCA: true, BasicConstraintsValid: true,
			MaxPathLen: path, MaxPathLenZero: path == 0, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
		}
	}
	first, second := template("root", 1, 1), template("intermediate", 2, 0)
	second.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageCodeSigning}
	made := must(x509.ParseCertificate(must(x509.CreateCertificate(rand.Reader, first, first, &root.PublicKey, root))))
	below := must(x509.ParseCertificate(must(x509.CreateCertificate(rand.Reader, second, made, &authority.PublicKey, root))))
	stamps := template("clock", 3, 0)
	stamps.IsCA, stamps.MaxPathLen, stamps.MaxPathLenZero, stamps.KeyUsage = false, 0, false, x509.KeyUsageDigitalSignature
	usage := must(asn1.Marshal([]asn1.ObjectIdentifier{{1, 3, 6, 1, 5, 5, 7, 3, 8}}))
	stamps.ExtraExtensions = []pkix.Extension{{Id: asn1.ObjectIdentifier{2, 5, 29, 37}, Critical: true, Value: usage}}
	beside := must(x509.ParseCertificate(must(x509.CreateCertificate(rand.Reader, stamps, made, &clock.PublicKey, root))))
	_, newest, err := ed25519.GenerateKey(rand.Reader)
	must(0, err)
	return instance{holder{root, made}, holder{authority, below}, holder{clock, beside}, newKey(), newKey(), newest}
}

// Returns the id of the log of Rekor 2, which contains its name.
func (one instance) tilesID() []byte {
	sum := sha256.Sum256(append([]byte(tiles+"\n\x01"), one.tiles.Public().(ed25519.PublicKey)...))
	return sum[:]
}

func logID(key *ecdsa.PrivateKey) []byte {
	sum := sha256.Sum256(public(key))
	return sum[:]
}

func (one instance) trustedRoot() object {
	since := object{"start": signed.AddDate(-1, 0, 0).Format(time.RFC3339)}
	log := func(name string, key *ecdsa.PrivateKey) []object {
		known := object{"rawBytes": text(public(key)), "keyDetails": "PKIX_ECDSA_P256_SHA_256", "validFor": since}
		return []object{{"baseUrl": "https://" + name, "hashAlgorithm": "SHA2_256", "publicKey": known, "logId": object{"keyId": text(logID(key))}}}
	}
	chain := []object{{"rawBytes": text(one.authority.certificate.Raw)}, {"rawBytes": text(one.root.certificate.Raw)}}
	authority := object{
		"subject": object{"organization": "example.org", "commonName": "root"}, "uri": "https://fulcio.example.org",
		"certChain": object{"certificates": chain}, "validFor": since,
	}
	known := object{"rawBytes": text(must(x509.MarshalPKIXPublicKey(one.tiles.Public()))), "keyDetails": "PKIX_ED25519", "validFor": since}
	second := object{"baseUrl": "https://" + tiles, "hashAlgorithm": "SHA2_256", "publicKey": known, "logId": object{"keyId": text(one.tilesID())}}
	chain = []object{{"rawBytes": text(one.clock.certificate.Raw)}, {"rawBytes": text(one.root.certificate.Raw)}}
	clock := object{
		"subject": object{"organization": "example.org", "commonName": "clock"}, "uri": "https://clock.example.org",
		"certChain": object{"certificates": chain}, "validFor": since,
	}
	return object{
		"mediaType": "application/vnd.dev.sigstore.trustedroot+json;version=0.1",
		"tlogs":     append(log("rekor.example.org", one.log), second), "timestampAuthorities": []object{clock},
		"certificateAuthorities": []object{authority}, "ctlogs": log("ctfe.example.org", one.issued),
	}
}

// Issues the certificate of a signer. Its log is that of `issued`, or none.
func (one instance) issue(issued *ecdsa.PrivateKey) holder {
	key, name := newKey(), must(url.Parse(subject))
	template := &x509.Certificate{
		SerialNumber: new(big.Int).SetBytes(logID(key)[:16]), URIs: []*url.URL{name}, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageCodeSigning}, NotBefore: signed.Add(-time.Minute), NotAfter: signed.Add(9 * time.Minute),
		ExtraExtensions: []pkix.Extension{
			{Id: asn1.ObjectIdentifier{1, 3, 6, 1, 4, 1, 57264, 1, 1}, Value: []byte(issuer)},
			{Id: asn1.ObjectIdentifier{1, 3, 6, 1, 4, 1, 57264, 1, 8}, Value: must(asn1.MarshalWithParams(issuer, "utf8"))},
		},
	}
	create := func() *x509.Certificate {
		made := must(x509.CreateCertificate(rand.Reader, template, one.authority.certificate, &key.PublicKey, one.authority.key))
		return must(x509.ParseCertificate(made))
	}
	made := create()
	if issued != nil {
		list := timestamp(issued, made.RawTBSCertificate, one.authority.certificate.RawSubjectPublicKeyInfo)
		extension := pkix.Extension{Id: asn1.ObjectIdentifier{1, 3, 6, 1, 4, 1, 11129, 2, 4, 2}, Value: must(asn1.Marshal(list))}
		template.ExtraExtensions = append(template.ExtraExtensions, extension)
		made = create()
	}
	return holder{key, made}
}

// Returns the list with the timestamp by which a log promises to list a certificate (RFC 6962).
func timestamp(key *ecdsa.PrivateKey, body, issuerKey []byte) []byte {
	at := binary.BigEndian.AppendUint64(nil, uint64(signed.Add(-time.Minute).UnixMilli()))
	keyHash := sha256.Sum256(issuerKey)
	data := append([]byte{0, 0}, at...)
	data = append(append(data, 0, 1), keyHash[:]...)
	data = append(data, byte(len(body)>>16), byte(len(body)>>8), byte(len(body)))
	data = append(append(data, body...), 0, 0)
	by := signature(key, data)
	one := append(append([]byte{0}, logID(key)...), at...)
	one = append(one, 0, 0, 4, 3)
	one = append(binary.BigEndian.AppendUint16(one, uint16(len(by))), by...)
	list := append(binary.BigEndian.AppendUint16(nil, uint16(len(one))), one...)
	return append(binary.BigEndian.AppendUint16(nil, uint16(len(list))), list...)
}

// Returns the promise of the log to list an entry, which proves its time.
func promise(log *ecdsa.PrivateKey, body []byte, at time.Time) []byte {
	return signature(log, encode(struct {
		Body  string `json:"body"`
		Time  int64  `json:"integratedTime"`
		ID    string `json:"logID"`
		Index int    `json:"logIndex"`
	}{text(body), at.Unix(), hex.EncodeToString(logID(log)), index}))
}

// Returns the log's entry of a body, with a proof of inclusion in a tree with this entry only.
func entry(log *ecdsa.PrivateKey, kind string, body []byte, at time.Time) object {
	root := sha256.Sum256(append([]byte{0}, body...))
	note := fmt.Sprintf("rekor.example.org - 1\n1\n%s\n", text(root[:]))
	line := text(append(append([]byte{}, logID(log)[:4]...), signature(log, []byte(note))...))
	proof := object{
		"logIndex": "0", "rootHash": text(root[:]), "treeSize": "1", "hashes": []string{},
		"checkpoint": object{"envelope": note + "\n— rekor.example.org " + line + "\n"},
	}
	return object{
		"logIndex": fmt.Sprint(index), "logId": object{"keyId": text(logID(log))}, "integratedTime": fmt.Sprint(at.Unix()),
		"kindVersion": object{"kind": kind, "version": "0.0.1"}, "canonicalizedBody": text(body), "inclusionProof": proof,
		"inclusionPromise": object{"signedEntryTimestamp": text(promise(log, body, at))},
	}
}

// Returns the entry of the log of Rekor 2, which has no time of its own.
func (one instance) entry(body []byte) object {
	root := sha256.Sum256(append([]byte{0}, body...))
	note := fmt.Sprintf("%s\n1\n%s\n", tiles, text(root[:]))
	line := text(append(append([]byte{}, one.tilesID()[:4]...), ed25519.Sign(one.tiles, []byte(note))...))
	proof := object{
		"logIndex": "0", "rootHash": text(root[:]), "treeSize": "1", "hashes": []string{},
		"checkpoint": object{"envelope": note + "\n— " + tiles + " " + line + "\n"},
	}
	return object{
		"logIndex": "0", "logId": object{"keyId": text(one.tilesID())}, "kindVersion": object{"kind": "hashedrekord", "version": "0.0.2"},
		"canonicalizedBody": text(body), "inclusionProof": proof,
	}
}

// Returns the timestamp of an authority over a signature (RFC 3161).
func (one instance) stamp(by []byte, at time.Time) []byte {
	sum := sha256.Sum256(by)
	request := timestamps.Timestamp{HashAlgorithm: crypto.SHA256, HashedMessage: sum[:], Time: at, Policy: asn1.ObjectIdentifier{1, 3, 6, 1, 4, 1, 57264, 2}}
	return must(request.CreateResponseWithOpts(one.clock.certificate, one.clock.key, crypto.SHA256))
}

// Returns an envelope with a signed statement about a manifest, the signed bytes, and the signature.
func envelope(signer holder, manifest, predicate string) (object, []byte, []byte, []byte) {
	statement := encode(object{
		"_type": "https://in-toto.io/Statement/v1", "subject": []object{{"digest": object{"sha256": manifest}}},
		"predicateType": predicate, "predicate": object{},
	})
	kind := "application/vnd.in-toto+json"
	covered := []byte(fmt.Sprintf("DSSEv1 %d %s %d %s", len(kind), kind, len(statement), statement))
	by := signature(signer.key, covered)
	return object{"payload": text(statement), "payloadType": kind, "signatures": []object{{"sig": text(by)}}}, statement, covered, by
}

// A signature of a manifest in the format of cosign 3, with the log of Rekor 2 and the timestamp of `clock`.
func stamped(signer holder, one, clock instance, manifest, predicate string, at time.Time) object {
	envelope, _, covered, by := envelope(signer, manifest, predicate)
	sum := sha256.Sum256(covered)
	verifier := object{"keyDetails": "PKIX_ECDSA_P256_SHA_256", "x509Certificate": object{"rawBytes": text(signer.certificate.Raw)}}
	body := encode(object{"apiVersion": "0.0.2", "kind": "hashedrekord", "spec": object{"hashedRekordV002": object{
		"data":      object{"algorithm": "SHA2_256", "digest": text(sum[:])},
		"signature": object{"content": text(by), "verifier": verifier},
	}}})
	stamps := []object{{"signedTimestamp": text(clock.stamp(by, at))}}
	return object{"mediaType": sigType, "dsseEnvelope": envelope, "verificationMaterial": object{
		"certificate": object{"rawBytes": text(signer.certificate.Raw)}, "tlogEntries": []object{one.entry(body)},
		"timestampVerificationData": object{"rfc3161Timestamps": stamps},
	}}
}

// A signature of a manifest in the format of cosign 3, with the log of Rekor 1.
func bundle(signer holder, log *ecdsa.PrivateKey, manifest, predicate string, at time.Time) object {
	envelope, statement, _, by := envelope(signer, manifest, predicate)
	sum := func(data []byte) object { return object{"algorithm": "sha256", "value": digest(data)} }
	body := encode(object{"apiVersion": "0.0.1", "kind": "dsse", "spec": object{
		"envelopeHash": sum(encode(envelope)), "payloadHash": sum(statement),
		"signatures": []object{{"signature": text(by), "verifier": text([]byte(signer.pem()))}},
	}})
	return object{
		"mediaType": sigType, "dsseEnvelope": envelope,
		"verificationMaterial": object{
			"certificate": object{"rawBytes": text(signer.certificate.Raw)}, "tlogEntries": []object{entry(log, "dsse", body, at)},
		},
	}
}

// A signature of a manifest in the format of cosign 2: the payload, and the annotations of its layer.
func simple(signer holder, authority instance, log *ecdsa.PrivateKey, manifest, purpose string, at time.Time) ([]byte, object) {
	payload := encode(object{"critical": object{
		"identity": object{"docker-reference": "registry.example.org/shop/web"}, "type": purpose,
		"image": object{"docker-manifest-digest": "sha256:" + manifest},
	}, "optional": nil})
	by := signature(signer.key, payload)
	body := encode(object{"apiVersion": "0.0.1", "kind": "hashedrekord", "spec": object{
		"data":      object{"hash": object{"algorithm": "sha256", "value": digest(payload)}},
		"signature": object{"content": text(by), "publicKey": object{"content": text([]byte(signer.pem()))}},
	}})
	proof := object{"SignedEntryTimestamp": text(promise(log, body, at)), "Payload": object{
		"body": text(body), "integratedTime": at.Unix(), "logIndex": index, "logID": hex.EncodeToString(logID(log)),
	}}
	return payload, object{
		"dev.cosignproject.cosign/signature": text(by), "dev.sigstore.cosign/bundle": string(encode(proof)),
		"dev.sigstore.cosign/certificate": signer.pem(), "dev.sigstore.cosign/chain": authority.authority.pem() + authority.root.pem(),
	}
}

// A directory with manifests and blobs of a registry.
type directory string

func (where directory) write(kind, name string, data []byte) {
	path := filepath.Join(string(where), kind, name)
	must(0, os.MkdirAll(filepath.Dir(path), 0o755))
	must(0, os.WriteFile(path, data, 0o644))
}

func (where directory) blob(kind string, data []byte) object {
	where.write("blobs", digest(data), data)
	return object{"mediaType": kind, "digest": "sha256:" + digest(data), "size": len(data)}
}

func (where directory) manifest(name string, manifest object) []byte {
	manifest["schemaVersion"] = 2
	if manifest["mediaType"] == nil {
		manifest["mediaType"] = image
	}
	data := encode(manifest)
	where.write("manifests", name, data)
	return data
}

// Writes an artifact under a tag. Returns the digest of its manifest, and its size.
func (where directory) artifact(tag string) (string, int) {
	var packed bytes.Buffer
	zipped := gzip.NewWriter(&packed)
	files := tar.NewWriter(zipped)
	content := []byte("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: web}\ndata: {key: " + tag + "}\n")
	must(0, files.WriteHeader(&tar.Header{Name: "web.yaml", Mode: 0o644, Size: int64(len(content))}))
	must(files.Write(content))
	must(0, files.Close())
	must(0, zipped.Close())
	config := where.blob("application/vnd.cncf.flux.config.v1+json", []byte("{}"))
	layer := where.blob("application/vnd.cncf.flux.content.v1.tar+gzip", packed.Bytes())
	data := where.manifest(tag, object{"config": config, "layers": []object{layer}})
	return digest(data), len(data)
}

// Writes an artifact whose signature refers to it. Returns the digest of its manifest.
func refer(here, format string, made func(string) object) string {
	where := directory(filepath.Join(here, format))
	manifest, size := where.artifact(format)
	content := where.blob(sigType, encode(made(manifest)))
	empty := where.blob("application/vnd.oci.empty.v1+json", []byte("{}"))
	referrer := object{
		"schemaVersion": 2, "mediaType": image, "artifactType": sigType, "config": empty, "layers": []object{content},
		"annotations": object{"dev.sigstore.bundle.content": "dsse-envelope", "dev.sigstore.bundle.predicateType": sign},
		"subject":     object{"mediaType": image, "digest": "sha256:" + manifest, "size": size},
	}
	data := encode(referrer)
	where.manifest("sha256-"+digest(data), referrer)
	where.manifest("sha256-"+manifest, object{"mediaType": "application/vnd.oci.image.index.v1+json", "manifests": []object{
		{"mediaType": image, "digest": "sha256:" + digest(data), "size": len(data), "artifactType": sigType},
	}})
	return manifest
}

func main() {
	here := os.Args[1]
	own, stranger := newInstance(), newInstance()
	signer := own.issue(own.issued)
	write := func(name string, value any) {
		must(0, os.WriteFile(filepath.Join(here, name), append(must(json.MarshalIndent(value, "", "  ")), '\n'), 0o644))
	}
	write("trusted_root.json", own.trustedRoot())
	write("stranger.json", stranger.trustedRoot())

	old := directory(filepath.Join(here, "simple"))
	first, _ := old.artifact("simple")
	payload, annotations := simple(signer, own, own.log, first, "cosign container image signature", signed)
	layer := old.blob("application/vnd.dev.cosign.simplesigning.v1+json", payload)
	layer["annotations"] = annotations
	config := old.blob("application/vnd.oci.image.config.v1+json", encode(object{
		"architecture": "", "os": "", "config": object{}, "rootfs": object{"type": "layers", "diff_ids": []string{"sha256:" + digest(payload)}},
	}))
	old.manifest("sha256-"+first+".sig", object{"config": config, "layers": []object{layer}})

	second := refer(here, "bundle", func(manifest string) object { return bundle(signer, own.log, manifest, sign, signed) })
	third := refer(here, "stamped", func(manifest string) object { return stamped(signer, own, own, manifest, sign, signed) })

	// Each is a valid signature but for one fault, which its name says.
	late := signed.Add(time.Hour)
	var hostile []object
	add := func(name string, signer holder, log instance, predicate string, at time.Time) {
		kind := "cosign container image signature"
		if predicate != sign {
			kind = predicate
		}
		payload, annotations := simple(signer, own, log.log, first, kind, at)
		hostile = append(hostile, object{
			"name": name, "bundle": bundle(signer, log.log, second, predicate, at), "payload": string(payload), "annotations": annotations,
			"stamped": stamped(signer, log, own, second, predicate, at),
		})
	}
	add("good", signer, own, sign, signed)
	add("expired", signer, own, sign, late)
	add("early", signer, own, sign, signed.Add(-time.Hour))
	add("other log", signer, stranger, sign, signed)
	add("other authority", stranger.issue(own.issued), own, sign, signed)
	add("unlisted certificate", own.issue(nil), own, sign, signed)
	add("certificate in another log", own.issue(stranger.issued), own, sign, signed)
	add("attestation", signer, own, "https://slsa.dev/provenance/v1", signed)
	hostile = append(hostile, object{"name": "other clock", "stamped": stamped(signer, own, stranger, second, sign, signed)})
	write("hostile.json", hostile)
	fmt.Println(strings.Join([]string{first, second, third}, " "))
}
