// SPDX-License-Identifier: GPL-3.0-or-later
// Copyright (c) 2026, the virtpools.kubevirt authors

// Package install puts onto an empty cluster what KubeVirt's (or HCO's) release manifests would.
package install

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	crdclient "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"virtpools.io/controlplane/standin/kubevirt"
	"virtpools.io/controlplane/standin/operator"
)

// Options say what to install.
type Options struct {
	Namespace    string
	Registry     string
	Version      string
	HCO          bool
	NativeFields []string
}

// Clients are what the installation talks through.
type Clients struct {
	Kubernetes  kubernetes.Interface
	Definitions crdclient.Interface
	Dynamic     dynamic.Interface
}

// Platform installs all but the user's object, and leaves alone what is there already.
func Platform(ctx context.Context, log *slog.Logger, clients Clients, options Options) error {
	if err := applyDefinitions(ctx, clients.Definitions, definitions(options.NativeFields, options.HCO)); err != nil {
		return err
	}
	if err := platform(ctx, clients.Kubernetes, options); err != nil {
		return err
	}
	if err := controllerRights(ctx, clients.Kubernetes, options.Namespace); err != nil {
		return err
	}
	log.Info("installed", "namespace", options.Namespace, "version", options.Version, "hco", options.HCO)
	return nil
}

func applyDefinitions(ctx context.Context, client crdclient.Interface, crds []*apiextensions.CustomResourceDefinition) error {
	api := client.ApiextensionsV1().CustomResourceDefinitions()
	for _, crd := range crds {
		_, err := api.Create(ctx, crd, metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) {
			err = replaceDefinition(ctx, client, crd)
		}
		if err != nil {
			return err
		}
	}
	for _, crd := range crds {
		if err := established(ctx, client, crd.Name); err != nil {
			return fmt.Errorf("definition %s: %w", crd.Name, err)
		}
	}
	return nil
}

func replaceDefinition(ctx context.Context, client crdclient.Interface, crd *apiextensions.CustomResourceDefinition) error {
	api := client.ApiextensionsV1().CustomResourceDefinitions()
	live, err := api.Get(ctx, crd.Name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	live.Spec = crd.Spec
	_, err = api.Update(ctx, live, metav1.UpdateOptions{})
	return err
}

func established(ctx context.Context, client crdclient.Interface, name string) error {
	return wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, 30*time.Second, true, func(ctx context.Context) (bool, error) {
		crd, err := client.ApiextensionsV1().CustomResourceDefinitions().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		for _, condition := range crd.Status.Conditions {
			if condition.Type == apiextensions.Established && condition.Status == apiextensions.ConditionTrue {
				return true, nil
			}
		}
		return false, nil
	})
}

func platform(ctx context.Context, client kubernetes.Interface, options Options) error {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: options.Namespace,
		Labels: map[string]string{
			"kubevirt.io": "", "openshift.io/cluster-monitoring": "true", "pod-security.kubernetes.io/enforce": "privileged",
		},
	}}
	_, err := client.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{})
	if err := tolerate(err); err != nil {
		return err
	}
	priority := &schedulingv1.PriorityClass{
		ObjectMeta: metav1.ObjectMeta{Name: "kubevirt-cluster-critical"}, Value: 1000000000,
		Description: "This priority class should be used for core kubevirt components only.",
	}
	_, err = client.SchedulingV1().PriorityClasses().Create(ctx, priority, metav1.CreateOptions{})
	if err := tolerate(err); err != nil {
		return err
	}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{
		Name: "kubevirt-operator", Namespace: options.Namespace, Labels: map[string]string{"kubevirt.io": ""},
	}}
	_, err = client.CoreV1().ServiceAccounts(options.Namespace).Create(ctx, account, metav1.CreateOptions{})
	if err := tolerate(err); err != nil {
		return err
	}
	image := fmt.Sprintf("%s/%s:%s", options.Registry, operator.Name, options.Version)
	deployment := operator.Deployment(options.Namespace, operator.Name, "kubevirt-operator", corev1.PullIfNotPresent, image,
		"--port", "8443", "-v", "2")
	_, err = client.AppsV1().Deployments(options.Namespace).Create(ctx, deployment, metav1.CreateOptions{})
	return tolerate(err)
}

func tolerate(err error) error {
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

// KubeVirt creates the user's object of a plain installation.
func KubeVirt(ctx context.Context, client dynamic.Interface, namespace string) error {
	object := &unstructured.Unstructured{Object: map[string]any{
		"metadata": map[string]any{"name": "kubevirt", "namespace": namespace},
		"spec": map[string]any{
			"certificateRotateStrategy": map[string]any{},
			"configuration": map[string]any{
				"developerConfiguration": map[string]any{}, "imagePullPolicy": "IfNotPresent",
			},
			"customizeComponents":    map[string]any{},
			"imagePullPolicy":        "IfNotPresent",
			"workloadUpdateStrategy": map[string]any{},
		},
	}}
	object.SetGroupVersionKind(kubevirt.Kind)
	_, err := client.Resource(kubevirt.Resource).Namespace(namespace).Create(ctx, object, metav1.CreateOptions{})
	return tolerate(err)
}
