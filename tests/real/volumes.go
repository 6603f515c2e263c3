package main

import (
	"context"
	"os"
	"path/filepath"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

// provisionedLabel marks the volumes that were created here.
const provisionedLabel = "devcluster.dev/provisioned"

// provisionVolumes creates a volume for every claim of any class, and deletes it with its claim.
func provisionVolumes(ctx context.Context, client kubernetes.Interface, site site) error {
	factory := informers.NewSharedInformerFactory(client, 0)
	on := func(informer cache.SharedIndexInformer, changed func(any)) error {
		_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc: changed, UpdateFunc: func(_, object any) { changed(object) },
		})
		return err
	}
	note := func(err error, what string, name string) {
		if err != nil && ctx.Err() == nil && !apierrors.IsAlreadyExists(err) && !apierrors.IsNotFound(err) {
			klog.ErrorS(err, what, "name", name)
		}
	}
	err := on(factory.Core().V1().PersistentVolumeClaims().Informer(), func(object any) {
		claim, ok := object.(*v1.PersistentVolumeClaim)
		if !ok || claim.DeletionTimestamp != nil || claim.Status.Phase != v1.ClaimPending || claim.Spec.VolumeName != "" {
			return
		}
		volume := volumeFor(claim, site.volumes)
		if len(site.nodes) > 0 {
			// A kubelet changes neither owner nor mode of such a directory.
			note(makeWritable(volume.Spec.HostPath.Path), "Making a volume's directory", claim.Name)
		}
		_, err := client.CoreV1().PersistentVolumes().Create(ctx, volume, metav1.CreateOptions{})
		note(err, "Making a volume", claim.Name)
	})
	if err != nil {
		return err
	}
	err = on(factory.Core().V1().PersistentVolumes().Informer(), func(object any) {
		volume, ok := object.(*v1.PersistentVolume)
		if !ok || volume.Labels[provisionedLabel] == "" || volume.DeletionTimestamp != nil {
			return
		}
		if volume.Status.Phase == v1.VolumeReleased || volume.Status.Phase == v1.VolumeFailed {
			note(client.CoreV1().PersistentVolumes().Delete(ctx, volume.Name, metav1.DeleteOptions{}), "Removing a volume", volume.Name)
		}
	})
	if err != nil {
		return err
	}
	factory.Start(ctx.Done())
	<-ctx.Done()
	factory.Shutdown()
	return nil
}

func makeWritable(path string) error {
	if err := os.MkdirAll(path, 0o777); err != nil {
		return err
	}
	return os.Chmod(path, 0o777)
}

// volumeFor builds a volume for a claim. The volume controller binds both.
func volumeFor(claim *v1.PersistentVolumeClaim, directory string) *v1.PersistentVolume {
	class := ""
	if claim.Spec.StorageClassName != nil {
		class = *claim.Spec.StorageClassName
	}
	return &v1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{
			Name: "pvc-" + string(claim.UID), Labels: map[string]string{provisionedLabel: "true"},
		},
		Spec: v1.PersistentVolumeSpec{
			AccessModes:                   claim.Spec.AccessModes,
			Capacity:                      v1.ResourceList{v1.ResourceStorage: claim.Spec.Resources.Requests[v1.ResourceStorage]},
			VolumeMode:                    claim.Spec.VolumeMode,
			StorageClassName:              class,
			PersistentVolumeReclaimPolicy: v1.PersistentVolumeReclaimDelete,
			PersistentVolumeSource: v1.PersistentVolumeSource{
				HostPath: &v1.HostPathVolumeSource{Path: filepath.Join(directory, string(claim.UID))},
			},
			ClaimRef: &v1.ObjectReference{
				APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID,
			},
		},
	}
}
