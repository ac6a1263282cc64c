// SPDX-License-Identifier: GPL-3.0-or-later
// Copyright (c) 2026, the virtpools.kubevirt authors

package install

import (
	"context"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"virtpools.io/controlplane/standin/kubevirt"
)

// controllerRights lets virt-controller's ServiceAccount do what the stand-in does in its name.
func controllerRights(ctx context.Context, client kubernetes.Interface, namespace string) error {
	name := kubevirt.ControllerAccount
	role := &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"kubevirt.io": ""}},
		Rules: []rbacv1.PolicyRule{
			allow("", []string{"pods"}, "get", "list", "watch", "delete", "update", "create", "patch"),
			allow("", []string{"pods/status"}, "patch"),
			allow("", []string{"pods/eviction"}, "create"),
			allow("", []string{"pods/finalizers"}, "update"),
			allow("", []string{"nodes"}, "get", "list", "watch", "update", "patch"),
			allow("", []string{"persistentvolumeclaims"}, "get", "list", "watch"),
			allow("", []string{"events"}, "update", "create", "patch"),
			allow("apps", []string{"controllerrevisions"}, "get", "list", "watch", "create", "update", "delete"),
			allow("apps", []string{"daemonsets"}, "list"),
			allow("kubevirt.io", []string{"*"}, "*"),
			allow(kubevirt.Instancetypes.Group, instancetypeResources, "get", "list", "watch"),
		},
	}
	_, err := client.RbacV1().ClusterRoles().Create(ctx, role, metav1.CreateOptions{})
	if err := tolerate(err); err != nil {
		return err
	}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"kubevirt.io": ""}},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: name}},
	}
	_, err = client.RbacV1().ClusterRoleBindings().Create(ctx, binding, metav1.CreateOptions{})
	return tolerate(err)
}

var instancetypeResources = []string{
	"virtualmachineinstancetypes", "virtualmachineclusterinstancetypes",
	"virtualmachinepreferences", "virtualmachineclusterpreferences",
}

func allow(group string, resources []string, verbs ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: resources, Verbs: verbs}
}
