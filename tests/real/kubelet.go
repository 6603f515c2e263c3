package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/component-base/version"
	"k8s.io/klog/v2"
	statusutil "k8s.io/kubernetes/pkg/util/pod"
)

// workers is the number of pods that are reconciled concurrently.
const workers = 8

// kubelet writes the status of the node's pods as if their containers had the configured outcomes.
type kubelet struct {
	client   kubernetes.Interface
	outcomes table
	queue    workqueue.TypedRateLimitingInterface[types.NamespacedName]
	pods     listers.PodLister
	started  []func(<-chan struct{})
	synced   []cache.InformerSynced

	mutex sync.Mutex
	// known are the pods of the node by UID.
	known map[types.UID]*running
}

// running is a pod on the node: its start and its last configured outcome.
type running struct {
	since time.Time
	told  *told
}

// toldNothing is the default outcome of a pod that does not restart.
var toldNothing = told{after: 100 * time.Millisecond}

func kubeletVersion() string { return version.Get().GitVersion }

func newKubelet(client kubernetes.Interface) *kubelet {
	limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[types.NamespacedName](10*time.Millisecond, time.Second)
	k := &kubelet{
		client: client,
		queue:  workqueue.NewTypedRateLimitingQueue(limiter),
		known:  map[types.UID]*running{},
	}
	pods := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithTweakListOptions(func(o *metav1.ListOptions) {
		o.FieldSelector = fields.OneTermEqualSelector("spec.nodeName", nodeName).String()
	}))
	maps := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(metav1.NamespaceSystem),
		informers.WithTweakListOptions(func(o *metav1.ListOptions) { o.LabelSelector = outcomesLabel }))
	k.pods = pods.Core().V1().Pods().Lister()
	k.watch(pods.Core().V1().Pods().Informer(), k.podChanged)
	k.watch(maps.Core().V1().ConfigMaps().Informer(), k.mapChanged)
	k.started = []func(<-chan struct{}){pods.Start, maps.Start}
	return k
}

// watch calls a function for each changed object, and whether it was deleted.
func (k *kubelet) watch(informer cache.SharedIndexInformer, changed func(object any, gone bool)) {
	_, _ = informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { changed(object, false) },
		UpdateFunc: func(_, object any) { changed(object, false) },
		DeleteFunc: func(object any) {
			if tombstone, ok := object.(cache.DeletedFinalStateUnknown); ok {
				object = tombstone.Obj
			}
			changed(object, true)
		},
	})
	k.synced = append(k.synced, informer.HasSynced)
}

func (k *kubelet) podChanged(object any, gone bool) {
	pod, ok := object.(*v1.Pod)
	if !ok {
		return
	}
	if gone {
		k.mutex.Lock()
		delete(k.known, pod.UID)
		k.mutex.Unlock()
		return
	}
	k.queue.Add(types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name})
}

func (k *kubelet) mapChanged(object any, gone bool) {
	configMap, ok := object.(*v1.ConfigMap)
	if !ok {
		return
	}
	data := configMap.Data
	if gone {
		data = nil
	}
	k.outcomes.set(configMap.Name, data)
	pods, _ := k.pods.List(labels.Everything())
	for _, pod := range pods {
		k.queue.Add(types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name})
	}
}

// run reconciles pods until the context ends.
func (k *kubelet) run(ctx context.Context) error {
	for _, start := range k.started {
		start(ctx.Done())
	}
	if !cache.WaitForCacheSync(ctx.Done(), k.synced...) {
		return errors.New("the pods could not be listed")
	}
	var group sync.WaitGroup
	for range workers {
		group.Go(func() {
			for k.next(ctx) {
			}
		})
	}
	<-ctx.Done()
	k.queue.ShutDown()
	group.Wait()
	return nil
}

func (k *kubelet) next(ctx context.Context) bool {
	key, shutdown := k.queue.Get()
	if shutdown {
		return false
	}
	defer k.queue.Done(key)
	again, err := k.look(ctx, key)
	switch {
	case err != nil && ctx.Err() == nil:
		klog.ErrorS(err, "Looking at a pod", "pod", key)
		k.queue.AddRateLimited(key)
	case again > 0:
		k.queue.Forget(key)
		k.queue.AddAfter(key, again)
	default:
		k.queue.Forget(key)
	}
	return true
}

// look reconciles the status of a pod and returns the delay until the next time.
func (k *kubelet) look(ctx context.Context, key types.NamespacedName) (time.Duration, error) {
	pod, err := k.pods.Pods(key.Namespace).Get(key.Name)
	if err != nil {
		return 0, nil // The pod was deleted.
	}
	if pod.DeletionTimestamp != nil {
		return 0, k.end(ctx, pod)
	}
	if pod.Status.Phase == v1.PodSucceeded || pod.Status.Phase == v1.PodFailed {
		return 0, nil
	}
	now := time.Now()
	outcome, again := k.outcome(pod, now)
	return again, k.say(ctx, pod, statusOf(pod, outcome, metav1.NewTime(now)))
}

// outcome returns the present outcome of a pod, and the delay until it may change.
func (k *kubelet) outcome(pod *v1.Pod, now time.Time) (outcome, time.Duration) {
	said, found := k.outcomes.toldOf(pod)
	k.mutex.Lock()
	known, ok := k.known[pod.UID]
	if !ok {
		known = &running{since: now}
		k.known[pod.UID] = known
	}
	if found {
		known.told = &said
	}
	told := known.told
	k.mutex.Unlock()
	if told == nil {
		fixed := outcomeOf(pod)
		if fixed.kind != fine || pod.Spec.RestartPolicy == v1.RestartPolicyAlways {
			return fixed, 0
		}
		told = &toldNothing
	}
	if left := told.after - now.Sub(known.since); left > 0 {
		return outcome{kind: busy, init: told.initFails}, left
	}
	return outcome{kind: ended, told: *told}, 0
}

// say writes a status if it changed.
func (k *kubelet) say(ctx context.Context, pod *v1.Pod, status v1.PodStatus) error {
	if apiequality.Semantic.DeepEqual(pod.Status, status) {
		return nil
	}
	_, _, _, err := statusutil.PatchPodStatus(ctx, k.client, pod.Namespace, pod.Name, pod.UID, pod.Status, status)
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil // Another pod of this name; its event follows.
	}
	return err
}

// end terminates the containers of a deleted pod and removes it.
func (k *kubelet) end(ctx context.Context, pod *v1.Pod) error {
	if pod.Status.Phase != v1.PodSucceeded && pod.Status.Phase != v1.PodFailed {
		if err := k.say(ctx, pod, killed(pod, metav1.Now())); err != nil {
			return err
		}
	}
	now := int64(0)
	options := metav1.DeleteOptions{GracePeriodSeconds: &now, Preconditions: &metav1.Preconditions{UID: &pod.UID}}
	err := k.client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, options)
	if err == nil || apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return fmt.Errorf("removing it: %w", err)
}
