package main

import (
	"context"
	"net"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"
)

// nodeName is the name of the simulated node.
const nodeName = "node"

// heartbeat is the interval of renewing the node's Lease. The node is lost after 50 s without a renewal.
const heartbeat = 10 * time.Second

// startNode registers the node and simulates its kubelet.
func startNode(ctx context.Context, tasks *tasks, client kubernetes.Interface, files files) error {
	listener, err := net.Listen("tcp", net.JoinHostPort(loopback.String(), "0"))
	if err != nil {
		return err
	}
	if err := register(ctx, client, listener.Addr().(*net.TCPAddr).Port); err != nil {
		return err
	}
	if err := renew(ctx, client); err != nil {
		return err
	}
	kubelet := newKubelet(client)
	tasks.start("the node", func(ctx context.Context) error {
		go beat(ctx, client)
		return kubelet.run(ctx)
	})
	tasks.start("the kubelet's server", func(ctx context.Context) error { return kubelet.serve(ctx, listener, files) })
	return nil
}

// register creates a ready node with a kubelet at a port.
func register(ctx context.Context, client kubernetes.Interface, port int) error {
	labels := map[string]string{
		v1.LabelHostname: nodeName, v1.LabelOSStable: "linux", v1.LabelArchStable: "amd64",
		"node-role.kubernetes.io/control-plane": "",
	}
	node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeName, Labels: labels}}
	node, err := client.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	room := v1.ResourceList{
		v1.ResourceCPU:              resource.MustParse("64"),
		v1.ResourceMemory:           resource.MustParse("256Gi"),
		v1.ResourceEphemeralStorage: resource.MustParse("1Ti"),
		v1.ResourcePods:             resource.MustParse("1000"),
	}
	now := metav1.Now()
	condition := func(kind v1.NodeConditionType, status v1.ConditionStatus, reason, message string) v1.NodeCondition {
		return v1.NodeCondition{
			Type: kind, Status: status, Reason: reason, Message: message, LastHeartbeatTime: now, LastTransitionTime: now,
		}
	}
	node.Status.Capacity, node.Status.Allocatable = room, room
	node.Status.Conditions = []v1.NodeCondition{
		condition(v1.NodeMemoryPressure, v1.ConditionFalse, "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
		condition(v1.NodeDiskPressure, v1.ConditionFalse, "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
		condition(v1.NodePIDPressure, v1.ConditionFalse, "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
		condition(v1.NodeReady, v1.ConditionTrue, "KubeletReady", "kubelet is posting ready status"),
	}
	node.Status.Addresses = []v1.NodeAddress{
		{Type: v1.NodeInternalIP, Address: loopback.String()}, {Type: v1.NodeHostName, Address: nodeName},
	}
	node.Status.DaemonEndpoints.KubeletEndpoint.Port = int32(port)
	node.Status.NodeInfo = v1.NodeSystemInfo{
		KubeletVersion: kubeletVersion(), OperatingSystem: "linux", Architecture: "amd64", OSImage: "simulated",
		ContainerRuntimeVersion: "simulated://1.0",
	}
	if node, err = client.CoreV1().Nodes().UpdateStatus(ctx, node, metav1.UpdateOptions{}); err != nil {
		return err
	}
	// The taint of an unready node. Its controller would remove it a moment later.
	patch := []byte(`{"spec":{"taints":null}}`)
	_, err = client.CoreV1().Nodes().Patch(ctx, nodeName, "application/merge-patch+json", patch, metav1.PatchOptions{})
	return err
}

// beat renews the node's Lease until the context ends.
func beat(ctx context.Context, client kubernetes.Interface) {
	ticker := time.NewTicker(heartbeat)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			if err := renew(ctx, client); err != nil {
				klog.ErrorS(err, "Renewing the node's Lease")
			}
		}
	}
}

func renew(ctx context.Context, client kubernetes.Interface) error {
	leases := client.CoordinationV1().Leases(v1.NamespaceNodeLease)
	holder, seconds, now := nodeName, int32(40), metav1.NowMicro()
	lease, err := leases.Get(ctx, nodeName, metav1.GetOptions{})
	if err != nil {
		lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: nodeName}}
		lease.Spec = coordinationv1.LeaseSpec{HolderIdentity: &holder, LeaseDurationSeconds: &seconds, RenewTime: &now}
		_, err = leases.Create(ctx, lease, metav1.CreateOptions{})
		return err
	}
	lease.Spec.RenewTime = &now
	_, err = leases.Update(ctx, lease, metav1.UpdateOptions{})
	return err
}
