package main

import (
	"errors"
	"net/url"
	"path/filepath"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
)

// startEtcd starts etcd on a socket in the directory, without waiting for the disk.
func startEtcd(dir string) (*embed.Etcd, error) {
	socket := func(name string) []url.URL {
		return []url.URL{{Scheme: "unix", Path: filepath.Join(dir, name)}}
	}
	config := embed.NewConfig()
	config.Dir = filepath.Join(dir, "etcd")
	config.ListenClientUrls = socket("etcd.sock")
	config.ListenPeerUrls = socket("etcd-peer.sock")
	// No client discovers this member by its URL.
	config.AdvertiseClientUrls = []url.URL{{Scheme: "http", Host: "localhost:1"}}
	config.AdvertisePeerUrls = config.AdvertiseClientUrls
	config.InitialCluster = config.InitialClusterFromName(config.Name)
	config.UnsafeNoFsync = true
	config.Logger = "zap"
	config.LogLevel = "warn"
	config.LogOutputs = []string{filepath.Join(dir, "etcd.log")}
	// The only member elects itself without waiting.
	config.TickMs, config.ElectionMs = 10, 100
	etcd, err := embed.StartEtcd(config)
	if err != nil {
		return nil, err
	}
	select {
	case <-etcd.Server.ReadyNotify():
		return etcd, nil
	case err := <-etcd.Err():
		etcd.Close()
		return nil, err
	case <-time.After(patience):
		etcd.Close()
		return nil, errors.New("it is not ready")
	}
}
