// SPDX-License-Identifier: GPL-3.0-or-later
// Copyright (c) 2026, the virtpools.kubevirt authors

package controller

import (
	"fmt"
	"log/slog"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	appslisters "k8s.io/client-go/listers/apps/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"

	"virtpools.io/controlplane/standin/kubelet"
	"virtpools.io/controlplane/standin/kubevirt"
	"virtpools.io/controlplane/standin/launcher"
)

// InstanceIndex finds pods by the uid of the instance that they were made for.
const InstanceIndex = "instance"

// Indexers are what the pod informer must have.
func Indexers() cache.Indexers {
	return cache.Indexers{InstanceIndex: func(object any) ([]string, error) {
		pod, ok := object.(*corev1.Pod)
		if !ok || pod.Labels[kubevirt.ComponentLabel] != kubevirt.LauncherComponent {
			return nil, nil
		}
		return []string{pod.Labels[kubevirt.CreatedByLabel]}, nil
	}}
}

// Platform is what the controllers of virtual machines share: clients that act as virt-controller's ServiceAccount,
// and the caches.
type Platform struct {
	Log        *slog.Logger
	Namespace  string
	Kubernetes kubernetes.Interface
	Dynamic    dynamic.Interface
	Recorder   record.EventRecorder

	Pods        cache.SharedIndexInformer
	Nodes       cache.SharedIndexInformer
	Deployments cache.SharedIndexInformer
	KubeVirts   cache.SharedIndexInformer
	VMs         cache.SharedIndexInformer
	VMIs        cache.SharedIndexInformer
	Migrations  cache.SharedIndexInformer
}

// deployed is the KubeVirt object and the launcher settings while virt-controller runs, else nothing.
func (p *Platform) deployed() (*kubevirt.KubeVirt, *launcher.Settings) {
	deployment, err := appslisters.NewDeploymentLister(p.Deployments.GetIndexer()).
		Deployments(p.Namespace).Get(kubevirt.ControllerDeployment)
	if err != nil {
		return nil, nil
	}
	args := deployment.Spec.Template.Spec.Containers[0].Args
	at := slices.Index(args, kubevirt.LauncherImageArgument)
	if at < 0 || at+1 >= len(args) {
		return nil, nil
	}
	for _, object := range p.KubeVirts.GetStore().List() {
		kv, err := kubevirt.Read[kubevirt.KubeVirt](object.(*unstructured.Unstructured))
		if err == nil && kv.Namespace == p.Namespace {
			return kv, settings(kv, args[at+1])
		}
	}
	return nil, nil
}

func settings(kv *kubevirt.KubeVirt, image string) *launcher.Settings {
	configuration := kv.Spec.Configuration
	verbosity := "2"
	if level, ok := configuration.DeveloperConfiguration.LogVerbosity["virtLauncher"]; ok {
		verbosity = fmt.Sprint(level)
	}
	return &launcher.Settings{
		Image: image, SidecarShim: launcher.Sibling(image, "sidecar-shim"), PullPolicy: kv.Spec.ImagePullPolicy,
		ImageVolumes: kv.Beta("ImageVolume"), Verbosity: verbosity,
		SerialLog:     configuration.VirtualMachineOptions.DisableSerialConsoleLog == nil,
		Emulation:     configuration.DeveloperConfiguration.UseEmulation,
		NodeSelectors: configuration.DeveloperConfiguration.NodeSelectors,
	}
}

// podsOf are all pods of an instance, the oldest first.
func (p *Platform) podsOf(vmi *kubevirt.VMI) []*corev1.Pod {
	objects, err := p.Pods.GetIndexer().ByIndex(InstanceIndex, string(vmi.UID))
	if err != nil {
		p.Log.Error("no index of pods by instance", "error", err)
		return nil
	}
	var pods []*corev1.Pod
	for _, object := range objects {
		if pod := object.(*corev1.Pod); metav1.IsControlledBy(pod, vmi) {
			pods = append(pods, pod)
		}
	}
	slices.SortFunc(pods, func(a, b *corev1.Pod) int { return a.CreationTimestamp.Compare(b.CreationTimestamp.Time) })
	return pods
}

// handled tells whether exactly one virt-handler is on the node, ready, on a node whose kubelet works.
func (p *Platform) handled(name string) bool {
	node, err := corelisters.NewNodeLister(p.Nodes.GetIndexer()).Get(name)
	if err != nil || kubelet.Down(node) {
		return false
	}
	objects, err := p.Pods.GetIndexer().ByIndex(kubelet.NodeIndex, name)
	if err != nil {
		return false
	}
	handlers, ready := 0, false
	for _, object := range objects {
		if pod := object.(*corev1.Pod); p.isHandler(pod) {
			handlers++
			ready = pod.DeletionTimestamp == nil && podCondition(pod, corev1.PodReady)
		}
	}
	return handlers == 1 && ready
}

func (p *Platform) isHandler(pod *corev1.Pod) bool {
	return pod.Namespace == p.Namespace && pod.Labels[kubevirt.ComponentLabel] == kubevirt.HandlerComponent
}

// vmi reads an instance from the cache; nothing when there is none, or it is none of ours.
func (p *Platform) vmi(key string) (*unstructured.Unstructured, *kubevirt.VMI, error) {
	object, exists, err := p.VMIs.GetStore().GetByKey(key)
	if err != nil || !exists {
		return nil, nil, err
	}
	raw := object.(*unstructured.Unstructured)
	if handsOff(raw) {
		return nil, nil, nil
	}
	vmi, err := kubevirt.Read[kubevirt.VMI](raw)
	return raw, vmi, err
}

func handsOff(object metav1.Object) bool {
	_, ok := object.GetAnnotations()[kubevirt.HandsOffKnob]
	return ok
}

func podCondition(pod *corev1.Pod, kind corev1.PodConditionType) bool {
	for _, condition := range pod.Status.Conditions {
		if condition.Type == kind {
			return condition.Status == corev1.ConditionTrue
		}
	}
	return false
}

func podFinished(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// alive: neither finished nor with all its containers terminated, as a pod may stay on a dead node.
func alive(pod *corev1.Pod) bool {
	if podFinished(pod) {
		return false
	}
	statuses := pod.Status.ContainerStatuses
	return len(statuses) == 0 || slices.ContainsFunc(statuses, func(status corev1.ContainerStatus) bool {
		return status.State.Terminated == nil
	})
}

// computeImage is the launcher image that the pod really has.
func computeImage(pod *corev1.Pod) string {
	for _, container := range pod.Spec.Containers {
		if container.Name == launcher.ComputeContainer {
			return container.Image
		}
	}
	return ""
}

// onEvent calls wake for every object that comes, changes or goes.
func onEvent(wake func(metav1.Object)) cache.ResourceEventHandler {
	call := func(object any) {
		if gone, ok := object.(cache.DeletedFinalStateUnknown); ok {
			object = gone.Obj
		}
		if meta, ok := object.(metav1.Object); ok {
			wake(meta)
		}
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc: call, DeleteFunc: call,
		UpdateFunc: func(before, after any) {
			old, current := before.(metav1.Object), after.(metav1.Object)
			if old.GetResourceVersion() != current.GetResourceVersion() {
				call(after)
			}
		},
	}
}

// ownerKey is the key of an object's controller, if that is of the kind.
func ownerKey(object metav1.Object, kind string) string {
	if owner := metav1.GetControllerOf(object); owner != nil && owner.Kind == kind {
		return object.GetNamespace() + "/" + owner.Name
	}
	return ""
}
