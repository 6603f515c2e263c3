// Prints objects, and what kstatus says of each, one JSON a line:
//
//	cd tests/kstatus && go run . > ../golden/kstatus.jsonl
//
// A generator with a fixed seed chooses the objects, so the same program prints the same lines. Append new kinds at the
// end: an entry before others changes their objects. Run the program only when you add objects or when kstatus changes.
// A unit test of `object::health` reads the printed file from `tests/golden`.
package main

import (
	"encoding/json"
	"fmt"
	"math/rand"
	"os"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/cli-utils/pkg/kstatus/status"
)

type object = map[string]any

var random = rand.New(rand.NewSource(14))

// One of these; nil leaves the field out.
func one(values ...any) any { return values[random.Intn(len(values))] }

func set(into object, field string, value any) {
	if value != nil {
		into[field] = value
	}
}

func count(around int64) any { return one(nil, around-1, around, around, around, around, around+1) }

func condition(kind string, state any, reasons ...any) object {
	made := object{"type": kind, "status": state}
	if len(reasons) > 0 {
		set(made, "reason", one(reasons...))
	}
	return made
}

func state() any { return one("True", "True", "False", "Unknown") }

// Some of these, in any order.
func some(conditions ...object) []any {
	chosen := []any{}
	for _, at := range random.Perm(len(conditions)) {
		if random.Intn(4) > 0 {
			chosen = append(chosen, conditions[at])
		}
	}
	return chosen
}

func counts(into object, around int64, fields ...string) {
	for _, field := range fields {
		set(into, field, count(around))
	}
}

type kind struct {
	apiVersion, kind string
	times            int
	fill             func(spec, status object)
}

var kinds = []kind{
	{"apps/v1", "Deployment", 120, func(spec, st object) {
		set(spec, "replicas", one(int64(2), int64(2), int64(1), nil, int64(0)))
		set(spec, "progressDeadlineSeconds", one(int64(600), int64(600), nil, int64(2147483647)))
		around, is := spec["replicas"].(int64)
		if !is {
			around = 1
		}
		if random.Intn(2) == 0 {
			for _, field := range []string{"replicas", "updatedReplicas", "readyReplicas", "availableReplicas"} {
				st[field] = around
			}
		} else {
			counts(st, around, "replicas", "updatedReplicas", "readyReplicas", "availableReplicas")
		}
		st["conditions"] = some(condition("Available", state()), condition("Available", "True"),
			condition("Progressing", state(), "NewReplicaSetAvailable", "NewReplicaSetAvailable", "NewReplicaSetAvailable", "ReplicaSetUpdated", "ProgressDeadlineExceeded"),
			condition("ReplicaFailure", one("True", "False"), "FailedCreate"))
	}},
	{"apps/v1", "StatefulSet", 80, func(spec, st object) {
		set(spec, "replicas", one(int64(2), int64(2), nil, int64(0)))
		if strategy := one(nil, nil, "OnDelete", "RollingUpdate"); strategy != nil {
			spec["updateStrategy"] = object{"type": strategy}
			if strategy == "RollingUpdate" {
				spec["updateStrategy"].(object)["rollingUpdate"] = object{"partition": one(int64(0), int64(1), int64(2))}
			}
		}
		around := int64(1)
		if replicas, is := spec["replicas"].(int64); is {
			around = replicas
		}
		counts(st, around, "replicas", "readyReplicas", "currentReplicas", "updatedReplicas")
		if random.Intn(2) == 0 {
			st["replicas"], st["readyReplicas"] = around, around
		}
		set(st, "currentRevision", one(nil, "a", "a"))
		set(st, "updateRevision", one(nil, "a", "a", "b"))
	}},
	{"apps/v1", "DaemonSet", 60, func(spec, st object) {
		set(spec, "updateStrategy", one(nil, object{"type": "OnDelete"}, object{"type": "RollingUpdate"}))
		set(st, "desiredNumberScheduled", one(nil, int64(2), int64(2), int64(2), int64(0)))
		counts(st, 2, "currentNumberScheduled", "updatedNumberScheduled", "numberAvailable", "numberReady")
	}},
	{"apps/v1", "ReplicaSet", 50, func(spec, st object) {
		set(spec, "replicas", one(int64(2), nil, int64(0)))
		counts(st, 2, "replicas", "fullyLabeledReplicas", "availableReplicas", "readyReplicas")
		if random.Intn(2) == 0 {
			for _, field := range []string{"replicas", "fullyLabeledReplicas", "availableReplicas", "readyReplicas"} {
				st[field] = spec["replicas"]
				if st[field] == nil {
					st[field] = int64(1)
				}
			}
		}
		st["conditions"] = some(condition("ReplicaFailure", one("True", "False", "False", "False"), "FailedCreate"))
	}},
	{"v1", "Pod", 70, func(_, st object) {
		set(st, "phase", one(nil, "Pending", "Pending", "Running", "Running", "Running", "Succeeded", "Failed"))
		st["conditions"] = some(condition("Ready", state()), condition("PodScheduled", one("True", "False"), "Unschedulable"))
		waiting := one(nil, object{"waiting": object{"reason": "CrashLoopBackOff"}}, object{"waiting": object{"reason": "ImagePullBackOff"}}, object{"running": object{}})
		if waiting != nil {
			st[one("containerStatuses", "containerStatuses", "initContainerStatuses").(string)] = []any{object{"name": "a", "state": waiting}}
		}
	}},
	{"batch/v1", "Job", 50, func(spec, st object) {
		set(spec, "suspend", one(nil, nil, false, true))
		set(st, "startTime", one(nil, "2026-01-01T00:00:00Z"))
		set(st, "succeeded", count(1))
		st["conditions"] = []any{}
		if ended := one(nil, "Complete", "Failed"); ended != nil {
			st["conditions"] = []any{condition(ended.(string), one("True", "True", "False"), "Any")}
		}
	}},
	{"v1", "PersistentVolumeClaim", 12, func(_, st object) { set(st, "phase", one(nil, "Bound", "Pending", "Lost")) }},
	{"v1", "Service", 20, func(spec, _ object) {
		set(spec, "type", one(nil, "ClusterIP", "LoadBalancer", "NodePort", "ExternalName"))
		set(spec, "clusterIP", one(nil, "", "None", "10.0.0.1"))
	}},
	{"apiextensions.k8s.io/v1", "CustomResourceDefinition", 40, func(_, st object) {
		st["conditions"] = some(condition("NamesAccepted", one("True", "True", "False"), "NoConflicts", "PluralConflict"),
			condition("Established", state(), "InitialNamesAccepted", "Installing", "NotAccepted"))
	}},
	{"policy/v1", "PodDisruptionBudget", 8, func(_, st object) { st["conditions"] = some(condition("Ready", state())) }},
	{"batch/v1", "CronJob", 8, func(_, st object) { st["conditions"] = some(condition("Ready", state())) }},
	{"v1", "ConfigMap", 4, func(_, _ object) {}},
	{"v1", "Secret", 4, func(_, _ object) {}},
	{"v1", "Namespace", 4, func(_, st object) { set(st, "phase", one("Active", "Terminating")) }},
	{"apiregistration.k8s.io/v1", "APIService", 8, func(_, st object) { st["conditions"] = some(condition("Available", state())) }},
	{"autoscaling/v2", "HorizontalPodAutoscaler", 8, func(_, st object) {
		st["conditions"] = some(condition("AbleToScale", state()), condition("ScalingActive", state()))
	}},
	{"example.org/v1", "Widget", 80, func(_, st object) {
		ready := condition("Ready", state(), "Any")
		set(ready, "observedGeneration", one(nil, nil, int64(1), int64(2)))
		st["conditions"] = some(ready, condition("Reconciling", one("True", "False", "False"), "Any"), condition("Stalled", one("True", "False", "False"), "Any"))
		if random.Intn(3) == 0 {
			st["conditions"] = []any{ready}
		}
	}},
}

func main() {
	out := json.NewEncoder(os.Stdout)
	for _, kind := range kinds {
		for at := 0; at < kind.times; at++ {
			spec, st := object{}, object{}
			kind.fill(spec, st)
			metadata := object{"name": "web", "creationTimestamp": "2026-01-01T00:00:00Z"}
			set(metadata, "generation", one(int64(2), int64(2), int64(2), int64(2), nil))
			set(st, "observedGeneration", one(int64(2), int64(2), int64(2), int64(2), int64(1), nil))
			if random.Intn(12) == 0 {
				metadata["deletionTimestamp"] = "2026-01-02T00:00:00Z"
			}
			made := object{"apiVersion": kind.apiVersion, "kind": kind.kind, "metadata": metadata, "spec": spec, "status": st}
			result, err := status.Compute(&unstructured.Unstructured{Object: made})
			if err != nil {
				fmt.Fprintln(os.Stderr, kind.kind, err)
				os.Exit(1)
			}
			said := string(result.Status)
			if result.Status == status.TerminatingStatus {
				said = string(status.InProgressStatus)
			}
			if err := out.Encode(object{"object": made, "status": said}); err != nil {
				panic(err)
			}
		}
	}
}
