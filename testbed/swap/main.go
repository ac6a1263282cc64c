// SPDX-License-Identifier: GPL-3.0-or-later
// Copyright (c) 2026, the virtpools.kubevirt authors

// Command swap is the least that a webhook for launcher images can do: by a device of the pod it replaces the image of the
// container compute. It adds no nodes, covers no other container, and reads nothing from the API server. The benchmark of the
// launcher policy compares the policy with it.
//
// Usage: swap DEVICE=IMAGE... It prints its address and its certificate as JSON.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"

	"virtpools.io/controlplane/agent/webhook"
)

func main() {
	if err := serve(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func serve(arguments []string) error {
	images := make(map[corev1.ResourceName]string, len(arguments))
	for _, argument := range arguments {
		device, image, found := strings.Cut(argument, "=")
		if !found {
			return fmt.Errorf("%q is not DEVICE=IMAGE", argument)
		}
		images[corev1.ResourceName(device)] = image
	}
	server, err := webhook.NewServer(slog.Default())
	if err != nil {
		return err
	}
	server.ServeMutation(webhook.Mutation{
		Path: "/",
		Change: func(_ context.Context, request *admissionv1.AdmissionRequest) ([]webhook.Operation, error) {
			return swap(images, request.Object.Raw)
		},
	})
	shown := map[string]string{"url": server.Address() + "/", "authority": string(server.Authority())}
	if err := json.NewEncoder(os.Stdout).Encode(shown); err != nil {
		return err
	}
	return server.Serve(context.Background())
}

func swap(images map[corev1.ResourceName]string, raw []byte) ([]webhook.Operation, error) {
	var pod corev1.Pod
	if err := json.Unmarshal(raw, &pod); err != nil {
		return nil, err
	}
	i := slices.IndexFunc(pod.Spec.Containers, func(c corev1.Container) bool { return c.Name == "compute" })
	if i < 0 {
		return nil, nil
	}
	for device := range pod.Spec.Containers[i].Resources.Limits {
		if image, found := images[device]; found {
			return []webhook.Operation{{Op: "replace", Path: fmt.Sprintf("/spec/containers/%d/image", i), Value: image}}, nil
		}
	}
	return nil, nil
}
