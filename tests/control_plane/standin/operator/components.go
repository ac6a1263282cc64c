// SPDX-License-Identifier: GPL-3.0-or-later
// Copyright (c) 2026, the virtpools.kubevirt authors

package operator

import (
	"fmt"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"virtpools.io/controlplane/standin/kubevirt"
)

const handlerName = kubevirt.HandlerComponent

// newStrategy builds the components as virt-operator's install strategy has them: before patches and placement.
func newStrategy(t target, configuration kubevirt.Configuration) *strategy {
	return &strategy{
		handler: handlerDaemonSet(t, configuration),
		api: Deployment(t.Namespace, "virt-api", "kubevirt-apiserver", t.ImagePullPolicy, t.image("virt-api"),
			"--port", "8443", "--console-server-port", "8186", "--subresources-only", "-v", verbosity(configuration, "virtAPI")),
		controller: Deployment(t.Namespace, "virt-controller", "kubevirt-controller", t.ImagePullPolicy, t.image("virt-controller"),
			"--launcher-image", t.image("virt-launcher"), "--exporter-image", t.image("virt-exportserver"),
			"--port", "8443", "-v", verbosity(configuration, "virtController")),
	}
}

func verbosity(configuration kubevirt.Configuration, component string) string {
	if level, ok := configuration.DeveloperConfiguration.LogVerbosity[component]; ok {
		return fmt.Sprint(level)
	}
	return "2"
}

func handlerDaemonSet(t target, configuration kubevirt.Configuration) *appsv1.DaemonSet {
	return &appsv1.DaemonSet{
		TypeMeta: metav1.TypeMeta{APIVersion: "apps/v1", Kind: "DaemonSet"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: t.Namespace, Name: handlerName,
			Labels: map[string]string{
				kubevirt.ComponentLabel:                   handlerName,
				"kubevirt.io/supports-migration-cn-types": "true",
			},
		},
		Spec: appsv1.DaemonSetSpec{
			UpdateStrategy: appsv1.DaemonSetUpdateStrategy{
				Type:          appsv1.RollingUpdateDaemonSetStrategyType,
				RollingUpdate: &appsv1.RollingUpdateDaemonSet{MaxUnavailable: new(intstr.FromInt32(1))},
			},
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{kubevirt.ComponentLabel: handlerName}},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{
					Name:        handlerName,
					Labels:      templateLabels(handlerName),
					Annotations: map[string]string{"openshift.io/required-scc": "kubevirt-handler"},
				},
				Spec: corev1.PodSpec{
					ServiceAccountName: "kubevirt-handler",
					HostPID:            true,
					PriorityClassName:  "kubevirt-cluster-critical",
					Tolerations:        []corev1.Toleration{{Key: "CriticalAddonsOnly", Operator: corev1.TolerationOpExists}},
					InitContainers:     []corev1.Container{nodeLabeller(t)},
					Containers:         []corev1.Container{handlerContainer(t, configuration)},
					Volumes:            handlerVolumes(),
				},
			},
		},
	}
}

func templateLabels(component string) map[string]string {
	return map[string]string{
		kubevirt.ComponentLabel:                        component,
		"np.kubevirt.io/allow-access-cluster-services": "true",
		"prometheus.kubevirt.io":                       "true",
	}
}

// nodeLabeller runs from the launcher image, to label the node with what that image's libvirt can do there.
func nodeLabeller(t target) corev1.Container {
	return corev1.Container{
		Name: "virt-launcher", Image: t.image("virt-launcher"), ImagePullPolicy: t.ImagePullPolicy,
		Command: []string{"/bin/sh", "-c"}, Args: []string{"node-labeller.sh"},
		Env: []corev1.EnvVar{
			{Name: "PREFERRED_VIRTTYPE", Value: "kvm"},
			{Name: "HYPERVISOR_DEVICE", Value: "kvm"},
		},
		SecurityContext:          &corev1.SecurityContext{Privileged: new(true), RunAsUser: new(int64(0))},
		VolumeMounts:             []corev1.VolumeMount{{Name: "node-labeller", MountPath: "/var/lib/kubevirt-node-labeller"}},
		TerminationMessagePolicy: corev1.TerminationMessageFallbackToLogsOnError,
	}
}

func handlerContainer(t target, configuration kubevirt.Configuration) corev1.Container {
	command := []string{handlerName}
	if most := configuration.VirtualMachineInstancesPerNode; most != nil {
		command = append(command, "--max-devices", strconv.Itoa(*most))
	}
	return corev1.Container{
		Name: handlerName, Image: t.image(handlerName), ImagePullPolicy: t.ImagePullPolicy,
		Command: command,
		Args: []string{
			"--port", "8443", "--hostname-override", "$(NODE_NAME)", "--pod-ip-address", "$(MY_POD_IP)",
			"--max-metric-requests", "3", "--console-server-port", "8186", "--vmstats-server-port", "8187",
			"--graceful-shutdown-seconds", "315", "-v", verbosity(configuration, "virtHandler"),
			"--migration-cn-types", "migration",
		},
		Env: []corev1.EnvVar{fieldEnv("NODE_NAME", "spec.nodeName"), fieldEnv("MY_POD_IP", "status.podIP")},
		Ports: []corev1.ContainerPort{
			{Name: "metrics", ContainerPort: 8443, Protocol: corev1.ProtocolTCP},
			{Name: "vmstats", ContainerPort: 8187, Protocol: corev1.ProtocolTCP},
		},
		LivenessProbe:  healthProbe(45),
		ReadinessProbe: healthProbe(20),
		Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse("10m"), corev1.ResourceMemory: resource.MustParse("325Mi"),
		}},
		SecurityContext: &corev1.SecurityContext{
			Privileged: new(true), SELinuxOptions: &corev1.SELinuxOptions{Level: "s0"},
		},
		TerminationMessagePolicy: corev1.TerminationMessageFallbackToLogsOnError,
		VolumeMounts:             handlerMounts(),
	}
}

func fieldEnv(name, path string) corev1.EnvVar {
	return corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: path}}}
}

func healthProbe(period int32) *corev1.Probe {
	return &corev1.Probe{
		ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{
			Scheme: corev1.URISchemeHTTPS, Port: intstr.FromInt32(8443), Path: "/healthz",
		}},
		InitialDelaySeconds: 15, TimeoutSeconds: 10, PeriodSeconds: period,
	}
}

func handlerMounts() []corev1.VolumeMount {
	return []corev1.VolumeMount{
		{Name: "kubevirt-virt-handler-server-certs", MountPath: "/etc/virt-handler/servercertificates", ReadOnly: true},
		{Name: "kubevirt-virt-handler-migration-client-certs", MountPath: "/etc/virt-handler/migrationservercertificates", ReadOnly: true},
		{Name: "kubevirt-virt-handler-vsock-client-certs", MountPath: "/etc/virt-handler/vsockclientcertificates", ReadOnly: true},
		{Name: "profile-data", MountPath: "/profile-data"},
		{Name: "libvirt-runtimes", MountPath: "/var/run/kubevirt-libvirt-runtimes"},
		{Name: "virt-share-dir", MountPath: "/var/run/kubevirt", MountPropagation: new(corev1.MountPropagationBidirectional)},
		{Name: "virt-private-dir", MountPath: "/var/run/kubevirt-private"},
		{Name: "kubelet-pods", MountPath: "/pods"},
		{Name: "kubelet", MountPath: "/var/lib/kubelet", MountPropagation: new(corev1.MountPropagationHostToContainer)},
		{Name: "node-labeller", MountPath: "/var/lib/kubevirt-node-labeller"},
		{Name: "podinfo", MountPath: "/etc/podinfo"},
	}
}

func handlerVolumes() []corev1.Volume {
	return []corev1.Volume{
		secretVolume("kubevirt-virt-handler-server-certs"),
		secretVolume("kubevirt-virt-handler-migration-client-certs"),
		secretVolume("kubevirt-virt-handler-vsock-client-certs"),
		{Name: "profile-data", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
		hostVolume("libvirt-runtimes", "/var/run/kubevirt-libvirt-runtimes"),
		hostVolume("virt-share-dir", "/var/run/kubevirt"),
		hostVolume("virt-private-dir", "/var/run/kubevirt-private"),
		hostVolume("kubelet-pods", "/var/lib/kubelet/pods"),
		hostVolume("kubelet", "/var/lib/kubelet"),
		hostVolume("node-labeller", "/var/lib/kubevirt-node-labeller"),
		{Name: "podinfo", VolumeSource: corev1.VolumeSource{DownwardAPI: &corev1.DownwardAPIVolumeSource{
			Items: []corev1.DownwardAPIVolumeFile{{
				Path:     "network-status",
				FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.annotations['k8s.v1.cni.cncf.io/network-status']"},
			}},
		}}},
	}
}

func secretVolume(name string) corev1.Volume {
	return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{
		Secret: &corev1.SecretVolumeSource{SecretName: name, Optional: new(true)},
	}}
}

func hostVolume(name, path string) corev1.Volume {
	return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: path}}}
}

// Deployment is a control program of KubeVirt, in outline. It prefers control plane nodes where the real one requires
// them, so that it also runs on a cluster that has none.
func Deployment(namespace, name, account string, pull corev1.PullPolicy, image string, args ...string) *appsv1.Deployment {
	labels := templateLabels(name)
	return &appsv1.Deployment{
		TypeMeta: metav1.TypeMeta{APIVersion: "apps/v1", Kind: "Deployment"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: name,
			Labels: map[string]string{kubevirt.ComponentLabel: name, "app.kubernetes.io/name": name},
		},
		Spec: appsv1.DeploymentSpec{
			Replicas: new(int32(2)),
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{kubevirt.ComponentLabel: name}},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{
					Name: name, Labels: labels,
					Annotations: map[string]string{"openshift.io/required-scc": "restricted-v2"},
				},
				Spec: corev1.PodSpec{
					ServiceAccountName: account,
					PriorityClassName:  "kubevirt-cluster-critical",
					Tolerations:        controlPlaneTolerations(),
					Affinity:           controlPlaneAffinity(name),
					SecurityContext:    &corev1.PodSecurityContext{RunAsNonRoot: new(true)},
					Containers: []corev1.Container{{
						Name: name, Image: image, ImagePullPolicy: pull, Command: []string{name}, Args: args,
						Ports:                    []corev1.ContainerPort{{Name: "metrics", ContainerPort: 8443, Protocol: corev1.ProtocolTCP}},
						TerminationMessagePolicy: corev1.TerminationMessageFallbackToLogsOnError,
					}},
				},
			},
		},
	}
}

func controlPlaneTolerations() []corev1.Toleration {
	return []corev1.Toleration{
		{Key: "CriticalAddonsOnly", Operator: corev1.TolerationOpExists},
		{Key: "node-role.kubernetes.io/control-plane", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule},
		{Key: "node-role.kubernetes.io/master", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule},
	}
}

func controlPlaneAffinity(component string) *corev1.Affinity {
	return &corev1.Affinity{
		NodeAffinity: &corev1.NodeAffinity{
			PreferredDuringSchedulingIgnoredDuringExecution: []corev1.PreferredSchedulingTerm{{
				Weight: 100,
				Preference: corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{{
					Key: "node-role.kubernetes.io/control-plane", Operator: corev1.NodeSelectorOpExists,
				}}},
			}},
		},
		PodAntiAffinity: &corev1.PodAntiAffinity{
			PreferredDuringSchedulingIgnoredDuringExecution: []corev1.WeightedPodAffinityTerm{{
				Weight: 1,
				PodAffinityTerm: corev1.PodAffinityTerm{
					TopologyKey:   corev1.LabelHostname,
					LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{kubevirt.ComponentLabel: component}},
				},
			}},
		},
	}
}
