// Applies manifests with Flux's own code like its kustomize-controller, so that tests meet its field managers, labels
// and annotations.
package main

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/fluxcd/pkg/ssa"
	"github.com/fluxcd/pkg/ssa/utils"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Group of Flux's Kustomizations, and prefix of the owner labels.
const group = "kustomize.toolkit.fluxcd.io"

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run() error {
	if len(os.Args) != 3 {
		return fmt.Errorf("usage: flux NAMESPACE/KUSTOMIZATION FILE, with KUBECONFIG in the environment")
	}
	namespace, name, _ := strings.Cut(os.Args[1], "/")
	file, err := os.Open(os.Args[2])
	if err != nil {
		return err
	}
	defer file.Close()
	objects, err := utils.ReadObjects(file)
	if err != nil {
		return err
	}
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	if err != nil {
		return err
	}
	cluster, err := client.New(config, client.Options{})
	if err != nil {
		return err
	}
	manager := ssa.NewResourceManager(cluster, nil, ssa.Owner{Field: "kustomize-controller", Group: group})
	manager.SetOwnerLabels(objects, name, namespace)
	options := ssa.DefaultApplyOptions()
	options.Cleanup = ssa.ApplyCleanupOptions{
		Annotations: []string{"kubectl.kubernetes.io/last-applied-configuration"},
		FieldManagers: []ssa.FieldManager{
			{Name: "kubectl", OperationType: metav1.ManagedFieldsOperationApply},
			{Name: "kubectl", OperationType: metav1.ManagedFieldsOperationUpdate},
			{Name: "before-first-apply", OperationType: metav1.ManagedFieldsOperationUpdate},
			{Name: "kustomize-controller", OperationType: metav1.ManagedFieldsOperationUpdate},
		},
	}
	changes, err := manager.ApplyAll(context.Background(), objects, options)
	if err != nil {
		return err
	}
	// The inventory of a Kustomization.
	for _, change := range changes.Entries {
		fmt.Println(change.ObjMetadata.String())
	}
	return nil
}
