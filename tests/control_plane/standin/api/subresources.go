// SPDX-License-Identifier: GPL-3.0-or-later
// Copyright (c) 2026, the virtpools.kubevirt authors

// Package api plays virt-api: the subresources of virtual machines, as an aggregated API, and the defaults that its
// webhooks fill in.
package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"virtpools.io/controlplane/standin/instancetype"
	"virtpools.io/controlplane/standin/kubevirt"
	"virtpools.io/controlplane/standin/webhook"
)

// Name of the Service.
const Name = "virt-api"

// SubresourceGroups are the group and versions of virtual machines' subresources.
var SubresourceGroups = []schema.GroupVersion{
	{Group: "subresources.kubevirt.io", Version: "v1"}, {Group: "subresources.kubevirt.io", Version: "v1alpha3"},
}

// API is virt-api. The API server has authorized each request before it comes here.
type API struct {
	log      *slog.Logger
	client   kubernetes.Interface
	dynamic  dynamic.Interface
	resolver instancetype.Resolver
}

// New makes the API and its paths on the server.
func New(log *slog.Logger, client kubernetes.Interface, dyn dynamic.Interface, server *webhook.Server) *API {
	a := &API{log: log, client: client, dynamic: dyn, resolver: instancetype.Resolver{Kubernetes: client, Dynamic: dyn}}
	for _, version := range SubresourceGroups {
		base := "/apis/" + version.String()
		server.HandleFunc("GET "+base, func(writer http.ResponseWriter, _ *http.Request) { a.answer(writer, discovery(version)) })
		server.HandleFunc("GET "+base+"/namespaces/{namespace}/virtualmachines/{name}/expand-spec", a.expandStored)
		server.HandleFunc("PUT "+base+"/namespaces/{namespace}/expand-vm-spec", a.expandGiven)
	}
	return a
}

func discovery(version schema.GroupVersion) *metav1.APIResourceList {
	return &metav1.APIResourceList{
		TypeMeta:     metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"},
		GroupVersion: version.String(),
		APIResources: []metav1.APIResource{
			{Name: "virtualmachines/expand-spec", Namespaced: true, Kind: kubevirt.VMKind.Kind, Verbs: metav1.Verbs{"get"}},
			{Name: "expand-vm-spec", Namespaced: true, Kind: kubevirt.VMKind.Kind, Verbs: metav1.Verbs{"update"}},
		},
	}
}

// expandStored expands a machine of the cluster.
func (a *API) expandStored(writer http.ResponseWriter, request *http.Request) {
	vm, err := a.dynamic.Resource(kubevirt.VMResource).Namespace(request.PathValue("namespace")).
		Get(request.Context(), request.PathValue("name"), metav1.GetOptions{})
	if err != nil {
		a.refuse(writer, err)
		return
	}
	a.expand(request.Context(), writer, vm)
}

// expandGiven expands a machine that comes with the request.
func (a *API) expandGiven(writer http.ResponseWriter, request *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(writer, request.Body, 3<<20))
	if err != nil {
		a.refuse(writer, err)
		return
	}
	vm := &unstructured.Unstructured{}
	if err := json.Unmarshal(body, &vm.Object); err != nil || vm.Object == nil {
		a.refuse(writer, apierrors.NewBadRequest(fmt.Sprintf("Can not unmarshal Request body to struct, error: %v", err)))
		return
	}
	vm.SetGroupVersionKind(kubevirt.VMKind)
	vm.SetNamespace(request.PathValue("namespace"))
	a.expand(request.Context(), writer, vm)
}

func (a *API) expand(ctx context.Context, writer http.ResponseWriter, vm *unstructured.Unstructured) {
	expanded, _, err := a.resolver.Expand(ctx, vm)
	if err != nil {
		a.refuse(writer, err)
		return
	}
	expanded.SetManagedFields(nil)
	a.answer(writer, expanded.Object)
}

func (a *API) answer(writer http.ResponseWriter, value any) {
	writer.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(writer).Encode(value); err != nil {
		a.log.Warn("answer lost", "error", err)
	}
}

func (a *API) refuse(writer http.ResponseWriter, err error) {
	status := apierrors.APIStatus(apierrors.NewInternalError(err))
	errors.As(err, &status)
	answer := status.Status()
	answer.Kind, answer.APIVersion = "Status", "v1"
	writer.Header().Set("Content-Type", "application/json")
	writer.WriteHeader(int(answer.Code))
	if err := json.NewEncoder(writer).Encode(answer); err != nil {
		a.log.Warn("answer lost", "error", err)
	}
}

// Register tells the API server where the subresources are. Port and certificate are new with every start.
func (a *API) Register(ctx context.Context, namespace string, server *webhook.Server) error {
	port, authority := server.Port(), server.Authority()
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: Name, Namespace: namespace, Labels: map[string]string{kubevirt.ComponentLabel: Name}},
		// The API server resolves the name itself, so that no cluster network is needed.
		Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "localhost"},
	}
	_, err := a.client.CoreV1().Services(namespace).Create(ctx, service, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return err
	}
	resource := a.dynamic.Resource(schema.GroupVersionResource{Group: "apiregistration.k8s.io", Version: "v1", Resource: "apiservices"})
	for _, version := range SubresourceGroups {
		object := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
			"metadata": map[string]any{
				"name": version.Version + "." + version.Group, "labels": map[string]any{kubevirt.ComponentLabel: "virt-api-aggregator"},
			},
			"spec": map[string]any{
				"group": version.Group, "version": version.Version, "groupPriorityMinimum": int64(1000), "versionPriority": int64(15),
				"caBundle": authority,
				"service":  map[string]any{"name": Name, "namespace": namespace, "port": int64(port)},
			},
		}}
		_, err := resource.Apply(ctx, object.GetName(), object, metav1.ApplyOptions{FieldManager: "virt-operator", Force: true})
		if err != nil {
			return err
		}
	}
	return nil
}
