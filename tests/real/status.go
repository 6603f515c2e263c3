package main

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// outcomeAnnotation selects the outcome of a pod.
const outcomeAnnotation = "devcluster.dev/outcome"

// killedCode is the exit code of containers in a deleted pod: 128 and SIGTERM.
const killedCode = 143

type outcomeKind int

const (
	// fine: it runs and is ready.
	fine outcomeKind = iota
	// neverReady: it runs, but is not ready.
	neverReady
	// noImage: its image cannot be pulled.
	noImage
	// crashLoop: it crashes repeatedly.
	crashLoop
	// busy: it runs until its configured end.
	busy
	// ended: it has finished.
	ended
)

// outcome is the state of a pod.
type outcome struct {
	kind outcomeKind
	// init tells whether an init container of a busy pod runs.
	init bool
	// told is the outcome of a finished pod.
	told told
}

// outcomeOf returns the outcome that the pod itself selects.
func outcomeOf(pod *v1.Pod) outcome {
	wanted := pod.Annotations[outcomeAnnotation]
	switch wanted {
	case "never-ready":
		return outcome{kind: neverReady}
	case "image-pull-backoff":
		return outcome{kind: noImage}
	case "crash-loop":
		return outcome{kind: crashLoop}
	}
	if text, ok := strings.CutPrefix(wanted, "exit:"); ok {
		if code, err := strconv.ParseInt(text, 10, 32); err == nil {
			var t told
			for _, container := range pod.Spec.Containers {
				t.ends = append(t.ends, end{container: container.Name, code: int32(code)})
			}
			return outcome{kind: ended, told: t}
		}
	}
	for _, container := range pod.Spec.Containers {
		host, _, isPath := strings.Cut(container.Image, "/")
		host, _, _ = strings.Cut(host, ":")
		if isPath && strings.HasSuffix(host, ".invalid") {
			return outcome{kind: noImage}
		}
	}
	return outcome{kind: fine}
}

// statusOf returns the kubelet's status of a pod.
func statusOf(pod *v1.Pod, o outcome, now metav1.Time) v1.PodStatus {
	status := *pod.Status.DeepCopy()
	if status.StartTime == nil {
		status.StartTime = &now
	}
	status.ObservedGeneration = pod.Generation
	status.HostIP, status.HostIPs = loopback.String(), []v1.HostIP{{IP: loopback.String()}}
	status.PodIP = address(pod)
	status.PodIPs = []v1.PodIP{{IP: status.PodIP}}

	restarts := pod.Spec.RestartPolicy == v1.RestartPolicyAlways ||
		pod.Spec.RestartPolicy == v1.RestartPolicyOnFailure && o.kind == ended && o.told.fails()
	status.Phase = phase(o, restarts)
	status.ContainerStatuses = containers(pod, o, false, restarts, *status.StartTime, now)
	status.InitContainerStatuses = containers(pod, o, true, restarts, *status.StartTime, now)
	setConditions(pod, &status, o, now)
	return status
}

func phase(o outcome, restarts bool) v1.PodPhase {
	switch {
	case o.kind == noImage, o.kind == busy && o.init, o.kind == ended && restarts && o.told.initFails:
		return v1.PodPending
	case o.kind == ended && !restarts && o.told.fails():
		return v1.PodFailed
	case o.kind == ended && !restarts:
		return v1.PodSucceeded
	default:
		return v1.PodRunning
	}
}

func setConditions(pod *v1.Pod, status *v1.PodStatus, o outcome, now metav1.Time) {
	done := status.Phase == v1.PodSucceeded || status.Phase == v1.PodFailed
	initialised := !(o.kind == busy && o.init || o.kind == ended && o.told.initFails)
	ready := o.kind == fine || o.kind == busy && !o.init
	unreadyReason := "ContainersNotReady"
	unready := "containers with unready status: [" + strings.Join(unreadyNames(status.ContainerStatuses), " ") + "]"
	switch status.Phase {
	case v1.PodSucceeded:
		unreadyReason, unready = "PodCompleted", ""
	case v1.PodFailed:
		unreadyReason, unready = "PodFailed", ""
	}
	uninitialised := "containers with incomplete status: [" + strings.Join(unreadyNames(status.InitContainerStatuses), " ") + "]"
	set := func(kind v1.PodConditionType, isSo bool, reason, message string) {
		condition := v1.PodCondition{Type: kind, Status: v1.ConditionTrue, ObservedGeneration: pod.Generation}
		if !isSo {
			condition.Status, condition.Reason, condition.Message = v1.ConditionFalse, reason, message
		}
		condition.LastTransitionTime = now
		for i, old := range status.Conditions {
			if old.Type != kind {
				continue
			}
			if old.Status == condition.Status {
				condition.LastTransitionTime = old.LastTransitionTime
			}
			status.Conditions[i] = condition
			return
		}
		status.Conditions = append(status.Conditions, condition)
	}
	set(v1.PodReadyToStartContainers, !done, "", "")
	set(v1.PodInitialized, initialised, "ContainersNotInitialized", uninitialised)
	set(v1.PodReady, ready, unreadyReason, unready)
	set(v1.ContainersReady, ready, unreadyReason, unready)
}

func unreadyNames(statuses []v1.ContainerStatus) []string {
	var names []string
	for _, status := range statuses {
		if !status.Ready {
			names = append(names, status.Name)
		}
	}
	return names
}

// containers returns the statuses of the containers, or of the init containers.
func containers(pod *v1.Pod, o outcome, init, restarts bool, start, now metav1.Time) []v1.ContainerStatus {
	list := pod.Spec.Containers
	if init {
		list = pod.Spec.InitContainers
	}
	var all []v1.ContainerStatus
	for _, container := range list {
		all = append(all, containerStatus(pod, container, o, init, restarts, start, now))
	}
	return all
}

func containerStatus(pod *v1.Pod, container v1.Container, o outcome, init, restarts bool, start, now metav1.Time) v1.ContainerStatus {
	id := "simulated://" + digest(string(pod.UID)+"/"+container.Name)
	status := v1.ContainerStatus{Name: container.Name, Image: container.Image}
	terminated := func(code int32, message string) *v1.ContainerStateTerminated {
		reason := "Completed"
		if code != 0 {
			reason = "Error"
		}
		return &v1.ContainerStateTerminated{
			ExitCode: code, Reason: reason, Message: message, StartedAt: start, FinishedAt: now, ContainerID: id,
		}
	}
	waiting := func(reason, message string) {
		status.State.Waiting = &v1.ContainerStateWaiting{Reason: reason, Message: message}
	}
	isRunning := func() { status.State.Running = &v1.ContainerStateRunning{StartedAt: start} }
	again := func(code int32, message string) {
		waiting("CrashLoopBackOff", fmt.Sprintf("back-off 10s restarting failed container=%s pod=%s_%s(%s)",
			container.Name, pod.Name, pod.Namespace, pod.UID))
		// Written at every reconcile, so its times must not change.
		status.LastTerminationState.Terminated = terminated(code, message)
		status.LastTerminationState.Terminated.FinishedAt = start
		status.RestartCount = 1
	}
	fate, started := o.told.fate(container.Name, init)
	switch {
	case o.kind == noImage && !init:
		waiting("ImagePullBackOff", fmt.Sprintf("Back-off pulling image %q", container.Image))
	case o.kind == busy && o.init && !init:
		waiting("PodInitializing", "")
	case o.kind == busy && o.init, o.kind == busy && !init, o.kind == fine && !init, o.kind == neverReady && !init:
		isRunning()
	case o.kind == crashLoop && !init:
		again(1, "")
	case o.kind != ended:
		status.State.Terminated = terminated(0, "")
		status.State.Terminated.FinishedAt = start
	case !started:
		waiting("PodInitializing", "")
	case restarts && (fate.code != 0 || !init):
		again(fate.code, fate.message)
	default:
		status.State.Terminated = terminated(fate.code, fate.message)
	}
	running := status.State.Running != nil
	status.Started = &running
	status.Ready = running && (o.kind == fine || o.kind == busy && !o.init) ||
		init && status.State.Terminated != nil && status.State.Terminated.ExitCode == 0
	if running {
		// A resize completes at once. Without resources here the API server refuses it.
		status.Resources = &v1.ResourceRequirements{Limits: container.Resources.Limits, Requests: container.Resources.Requests}
		status.AllocatedResources = container.Resources.Requests
	}
	if status.State.Waiting == nil || status.LastTerminationState.Terminated != nil {
		status.ContainerID = id
		status.ImageID = container.Image + "@sha256:" + digest(container.Image)
	}
	for _, old := range append(pod.Status.ContainerStatuses, pod.Status.InitContainerStatuses...) {
		if old.Name == container.Name && old.State.Terminated != nil && status.State.Terminated != nil {
			status.State.Terminated.FinishedAt = old.State.Terminated.FinishedAt
		}
	}
	return status
}

// killed returns the status of a pod whose containers were terminated by its deletion.
func killed(pod *v1.Pod, now metav1.Time) v1.PodStatus {
	status := *pod.Status.DeepCopy()
	end := func(statuses []v1.ContainerStatus) {
		for i := range statuses {
			one, start := &statuses[i], now
			if one.State.Terminated != nil {
				continue
			}
			if one.State.Running != nil {
				start = one.State.Running.StartedAt
			}
			isRunning := false
			one.Ready, one.Started = false, &isRunning
			one.State = v1.ContainerState{Terminated: &v1.ContainerStateTerminated{
				ExitCode: killedCode, Reason: "Error", StartedAt: start, FinishedAt: now, ContainerID: one.ContainerID,
			}}
		}
	}
	end(status.ContainerStatuses)
	end(status.InitContainerStatuses)
	status.Phase = v1.PodFailed
	setConditions(pod, &status, outcome{kind: ended}, now)
	return status
}

func digest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

// address returns an address in the pod network, derived from the pod's UID.
func address(pod *v1.Pod) string {
	sum := sha256.Sum256([]byte(pod.UID))
	return fmt.Sprintf("10.244.%d.%d", sum[0], min(max(sum[1], 2), 254))
}
