// Command image writes a container image of directories, for `ctr images import` and `skopeo copy oci-archive:FILE`,
// and prints the digest of its manifest. The output is deterministic.
//
//	image --out FILE --name NAME [--config JSON] DIRECTORY…
//
// Each directory becomes a layer. JSON is the `config` of the image: Env, Entrypoint, Cmd, User, WorkingDir.
package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

const (
	manifestType = "application/vnd.oci.image.manifest.v1+json"
	configType   = "application/vnd.oci.image.config.v1+json"
	layerType    = "application/vnd.oci.image.layer.v1.tar+gzip"
)

type descriptor struct {
	MediaType   string            `json:"mediaType"`
	Digest      string            `json:"digest"`
	Size        int64             `json:"size"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

func main() {
	out, name, config := flag.String("out", "", "file"), flag.String("name", "", "name"), flag.String("config", "{}", "JSON")
	flag.Parse()
	digest, err := write(*out, *name, *config, flag.Args())
	if err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
	fmt.Println(digest)
}

func write(out, name, config string, directories []string) (string, error) {
	temporary := out + ".new"
	file, err := os.Create(temporary)
	if err != nil {
		return "", err
	}
	defer file.Close()
	archive := tar.NewWriter(file)
	blob := func(kind string, content []byte) (descriptor, error) {
		d := descriptor{MediaType: kind, Digest: digestOf(content), Size: int64(len(content))}
		return d, entry(archive, "blobs/sha256/"+d.Digest[len("sha256:"):], content)
	}
	var layers []descriptor
	var unpacked []string
	for _, directory := range directories {
		content, digest, err := layer(directory)
		if err != nil {
			return "", err
		}
		d, err := blob(layerType, content)
		if err != nil {
			return "", err
		}
		layers, unpacked = append(layers, d), append(unpacked, digest)
	}
	// buildah requires a line of history per layer.
	history := make([]map[string]string, len(layers))
	for i, directory := range directories {
		history[i] = map[string]string{"created_by": filepath.Base(directory)}
	}
	document, err := json.Marshal(map[string]any{
		"history": history, "architecture": "amd64", "os": "linux", "config": json.RawMessage(config),
		"rootfs": map[string]any{"type": "layers", "diff_ids": unpacked},
	})
	if err != nil {
		return "", fmt.Errorf("--config: %w", err)
	}
	configuration, err := blob(configType, document)
	if err != nil {
		return "", err
	}
	document, _ = json.Marshal(map[string]any{
		"schemaVersion": 2, "mediaType": manifestType, "config": configuration, "layers": layers,
	})
	manifest, err := blob(manifestType, document)
	if err != nil {
		return "", err
	}
	digest := manifest.Digest
	manifest.Annotations = map[string]string{"io.containerd.image.name": name, "org.opencontainers.image.ref.name": name}
	index, _ := json.Marshal(map[string]any{"schemaVersion": 2, "manifests": []descriptor{manifest}})
	if err := entry(archive, "index.json", index); err != nil {
		return "", err
	}
	if err := entry(archive, "oci-layout", []byte(`{"imageLayoutVersion":"1.0.0"}`)); err != nil {
		return "", err
	}
	if err := archive.Close(); err != nil {
		return "", err
	}
	return digest, os.Rename(temporary, out)
}

func digestOf(content []byte) string { return fmt.Sprintf("sha256:%x", sha256.Sum256(content)) }

func entry(archive *tar.Writer, name string, content []byte) error {
	if err := archive.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(content))}); err != nil {
		return err
	}
	_, err := archive.Write(content)
	return err
}

// layer packs a directory. It also returns the digest of the uncompressed archive.
func layer(directory string) ([]byte, string, error) {
	var packed bytes.Buffer
	compressed, _ := gzip.NewWriterLevel(&packed, gzip.BestSpeed)
	sum := sha256.New()
	archive := tar.NewWriter(io.MultiWriter(compressed, sum))
	// Hard links are packed once.
	known := map[uint64]string{}
	err := filepath.WalkDir(directory, func(path string, _ fs.DirEntry, err error) error {
		if err != nil || path == directory {
			return err
		}
		return pack(archive, directory, path, known)
	})
	if err != nil {
		return nil, "", err
	}
	if err := archive.Close(); err != nil {
		return nil, "", err
	}
	if err := compressed.Close(); err != nil {
		return nil, "", err
	}
	return packed.Bytes(), fmt.Sprintf("sha256:%x", sum.Sum(nil)), nil
}

func pack(archive *tar.Writer, directory, path string, known map[uint64]string) error {
	info, err := os.Lstat(path)
	if err != nil {
		return err
	}
	if info.Mode()&(fs.ModeDevice|fs.ModeSocket|fs.ModeNamedPipe) != 0 {
		return nil
	}
	link := ""
	if info.Mode()&fs.ModeSymlink != 0 {
		if link, err = os.Readlink(path); err != nil {
			return err
		}
	}
	header, err := tar.FileInfoHeader(info, link)
	if err != nil {
		return err
	}
	if header.Name, err = filepath.Rel(directory, path); err != nil {
		return err
	}
	if info.IsDir() {
		header.Name += "/"
	}
	header.Uname, header.Gname, header.ModTime = "", "", time.Unix(0, 0)
	header.AccessTime, header.ChangeTime = time.Time{}, time.Time{}
	stat := info.Sys().(*syscall.Stat_t)
	if first, found := known[stat.Ino]; found && info.Mode().IsRegular() {
		header.Typeflag, header.Linkname, header.Size = tar.TypeLink, first, 0
		return archive.WriteHeader(header)
	}
	if info.Mode().IsRegular() && stat.Nlink > 1 {
		known[stat.Ino] = header.Name
	}
	if err := archive.WriteHeader(header); err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return nil
	}
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	_, err = io.Copy(archive, file)
	return err
}
