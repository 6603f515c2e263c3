package main

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
)

// outcomesLabel selects the ConfigMaps of kube-system that configure outcomes. Each value of their data is an entry.
const outcomesLabel = "devcluster.dev/outcomes"

// An entry configures how the containers of an image end, in the format of POST /devcluster/simulate of the embedded
// cluster.
//
// The most specific entry wins: one with a namespace before one without, then one with a container before one without.
// An entry that is written or changed while a pod runs takes effect. A removed one stays in effect for running pods.
// Init containers that exit with 0 do so at once; the first that fails ends the pod. Otherwise the pod ends with the
// last of its containers with an entry.
type entry struct {
	// Namespace of the pods; empty for all.
	Namespace string `json:"namespace"`
	// Image of the containers.
	Image string `json:"image"`
	// Container name; empty for all containers of the image.
	Container string `json:"container"`
	// ExitCode is the container's exit code.
	ExitCode int32 `json:"exitCode"`
	// TerminationMessage is the container's message; {digest} becomes sha256: and the SHA-256 of its args, joined by NUL.
	TerminationMessage string `json:"terminationMessage"`
	// AfterMillis is the time of the exit since the pod's start on the node, independent of when the entry is written.
	AfterMillis int64 `json:"afterMillis"`
	// Log is the output of `kubectl logs`.
	Log *string `json:"log"`
}

// place is the key of an entry.
type place struct{ namespace, image, container string }

// table holds the entries of all ConfigMaps.
type table struct {
	mutex   sync.Mutex
	maps    map[string]map[string]string
	entries map[place]entry
}

// set replaces the entries of a ConfigMap; nil removes them.
func (t *table) set(name string, data map[string]string) {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	if t.maps == nil {
		t.maps = map[string]map[string]string{}
	}
	t.maps[name] = data
	t.entries = map[place]entry{}
	for name, data := range t.maps {
		for key, text := range data {
			var e entry
			decoder := json.NewDecoder(strings.NewReader(text))
			decoder.DisallowUnknownFields()
			if err := decoder.Decode(&e); err != nil {
				klog.ErrorS(err, "Reading an outcome", "configMap", name, "key", key)
				continue
			}
			t.entries[place{e.Namespace, e.Image, e.Container}] = e
		}
	}
}

// find returns the entry for a container.
func (t *table) find(namespace string, container v1.Container) (entry, bool) {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	for _, where := range []place{
		{namespace, container.Image, container.Name},
		{namespace, container.Image, ""},
		{"", container.Image, container.Name},
		{"", container.Image, ""},
	} {
		if e, ok := t.entries[where]; ok {
			return e, true
		}
	}
	return entry{}, false
}

// end is the outcome of one container.
type end struct {
	container string
	init      bool
	code      int32
	message   string
	after     time.Duration
}

// told is the configured outcome of a pod.
type told struct {
	ends []end
	// after is the time of the pod's end since its start.
	after time.Duration
	// initFails tells whether an init container fails, so that the others never start.
	initFails bool
}

// toldOf returns the configured outcome of a pod.
func (t *table) toldOf(pod *v1.Pod) (told, bool) {
	var found told
	var last time.Duration
	collect := func(containers []v1.Container, init bool) {
		for _, container := range containers {
			e, ok := t.find(pod.Namespace, container)
			if !ok {
				continue
			}
			digest := sha256.Sum256([]byte(strings.Join(container.Args, "\x00")))
			message := strings.ReplaceAll(e.TerminationMessage, "{digest}", "sha256:"+hex.EncodeToString(digest[:]))
			after := time.Duration(e.AfterMillis) * time.Millisecond
			found.ends = append(found.ends, end{container.Name, init, e.ExitCode, message, after})
			if init && e.ExitCode != 0 && !found.initFails {
				found.initFails, found.after = true, after
			}
			if !init {
				last = max(last, after)
			}
		}
	}
	collect(pod.Spec.InitContainers, true)
	collect(pod.Spec.Containers, false)
	if !found.initFails {
		found.after = last
	}
	return found, len(found.ends) > 0
}

// fails tells whether a container exits with a code other than 0.
func (t told) fails() bool {
	for _, end := range t.ends {
		if end.code != 0 {
			return true
		}
	}
	return false
}

// fate returns the outcome of a container in a finished pod; false if it never started.
func (t told) fate(name string, init bool) (end, bool) {
	if t.initFails && !init {
		return end{}, false
	}
	failed := false
	for _, end := range t.ends {
		if end.container == name && end.init == init {
			return end, !(t.initFails && failed)
		}
		failed = failed || end.code != 0
	}
	return end{container: name, init: init}, true
}

// logOf returns the log of a container.
func (t *table) logOf(pod *v1.Pod, container v1.Container) string {
	if e, ok := t.find(pod.Namespace, container); ok && e.Log != nil {
		return *e.Log
	}
	return fmt.Sprintf("%s of %s/%s\n", container.Name, pod.Namespace, pod.Name)
}
