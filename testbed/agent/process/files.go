// SPDX-License-Identifier: GPL-3.0-or-later
// Copyright (c) 2026, the virtpools.kubevirt authors

package process

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	tokenLife = 365 * 24 * time.Hour
	mountWait = 200 * time.Millisecond
	// renewal is how often mounted Secrets are read again; virt-operator renews certificates hours before they end.
	renewal = 30 * time.Second
)

// Cluster is where programs find the API server.
type Cluster struct {
	Server    string
	Authority []byte
}

// certificates are the flags that say where a program's mounted certificates are: mount path of the flag's default, the
// Secret that is mounted there, and the file.
var certificates = map[string][]struct{ flag, secret, file string }{
	"virt-api": {
		{"--tls-cert-file", "kubevirt-virt-api-certs", "tls.crt"},
		{"--tls-key-file", "kubevirt-virt-api-certs", "tls.key"},
		{"--handler-cert-file", "kubevirt-virt-handler-certs", "tls.crt"},
		{"--handler-key-file", "kubevirt-virt-handler-certs", "tls.key"},
	},
	"virt-controller": {
		{"--prom-cert-file", "kubevirt-controller-certs", "tls.crt"},
		{"--prom-key-file", "kubevirt-controller-certs", "tls.key"},
	},
}

// arguments are those of the container, and those that say where the files are that a kubelet would mount. They come
// once all of these files are there.
func (r *Runtime) arguments(ctx context.Context, pod *corev1.Pod) ([]string, error) {
	name, _ := r.program(pod)
	kubeconfig, err := r.kubeconfig(ctx, pod)
	if err != nil {
		return nil, err
	}
	container := pod.Spec.Containers[0]
	arguments := append(append(container.Command[1:len(container.Command):len(container.Command)], container.Args...), "--kubeconfig", kubeconfig)
	for _, each := range certificates[name] {
		folder := filepath.Join(r.options.Dir, "secrets", each.secret)
		if err := r.mount(ctx, pod.Namespace, each.secret, folder); err != nil {
			return nil, err
		}
		arguments = append(arguments, each.flag, filepath.Join(folder, each.file))
	}
	return arguments, nil
}

// mount writes a Secret's values to files once it exists, and keeps them up to date until the context ends.
func (r *Runtime) mount(ctx context.Context, namespace, name, folder string) error {
	for {
		secret, err := r.client.CoreV1().Secrets(namespace).Get(ctx, name, metav1.GetOptions{})
		if err == nil && len(secret.Data) > 0 {
			if err := write(folder, secret.Data); err != nil {
				return err
			}
			go r.renew(ctx, namespace, name, folder)
			return nil
		}
		if err != nil && !apierrors.IsNotFound(err) {
			return err
		}
		if err := pause(ctx, mountWait); err != nil {
			return err
		}
	}
}

func (r *Runtime) renew(ctx context.Context, namespace, name, folder string) {
	for pause(ctx, renewal) == nil {
		if secret, err := r.client.CoreV1().Secrets(namespace).Get(ctx, name, metav1.GetOptions{}); err == nil {
			if err := write(folder, secret.Data); err != nil {
				r.log.Error("a Secret was not written", "secret", name, "error", err)
			}
		}
	}
}

func pause(ctx context.Context, duration time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(duration):
		return nil
	}
}

// writing keeps pods that share a folder from writing the same file at the same time.
var writing sync.Mutex

func write(folder string, files map[string][]byte) error {
	writing.Lock()
	defer writing.Unlock()
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return err
	}
	for name, content := range files {
		path := filepath.Join(folder, name)
		if have, err := os.ReadFile(path); err == nil && bytes.Equal(have, content) {
			continue
		}
		if err := os.WriteFile(path+".new", content, 0o600); err != nil {
			return err
		}
		if err := os.Rename(path+".new", path); err != nil {
			return err
		}
	}
	return nil
}

// kubeconfig writes one with a token of the pod's ServiceAccount.
func (r *Runtime) kubeconfig(ctx context.Context, pod *corev1.Pod) (string, error) {
	account := pod.Spec.ServiceAccountName
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		ExpirationSeconds: new(int64(tokenLife.Seconds())),
	}}
	answer, err := r.client.CoreV1().ServiceAccounts(pod.Namespace).CreateToken(ctx, account, request, metav1.CreateOptions{})
	if err != nil {
		return "", err
	}
	cluster, elsewhere := r.options.Accounts[account]
	if !elsewhere {
		cluster = r.cluster
	}
	content, err := json.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "Config", "current-context": "cluster",
		"clusters": []any{map[string]any{"name": "cluster", "cluster": map[string]any{
			"server": cluster.Server, "certificate-authority-data": cluster.Authority,
		}}},
		"users":    []any{map[string]any{"name": account, "user": map[string]any{"token": answer.Status.Token}}},
		"contexts": []any{map[string]any{"name": "cluster", "context": map[string]any{"cluster": "cluster", "user": account}}},
	})
	if err != nil {
		return "", err
	}
	folder := filepath.Join(r.options.Dir, "secrets")
	return filepath.Join(folder, account), write(folder, map[string][]byte{account: content})
}
