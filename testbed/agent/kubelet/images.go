// SPDX-License-Identifier: GPL-3.0-or-later
// Copyright (c) 2026, the virtpools.kubevirt authors

package kubelet

import (
	"crypto/sha256"
	"encoding/hex"
	"sort"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
)

const (
	// UnpullableHost is the registry that never answers.
	UnpullableHost = "unpullable.example"
	// PrivateHost is the registry that wants credentials.
	PrivateHost = "private.example"
)

// What an image's name says about the image.

func registryHost(image string) string {
	host, _, _ := strings.Cut(image, "/")
	return host
}

func unpullable(image string) bool { return registryHost(image) == UnpullableHost }

// tag is empty for images named by digest only.
func tag(image string) string {
	name, _, _ := strings.Cut(image, "@")
	name = name[strings.LastIndex(name, "/")+1:]
	_, tag, _ := strings.Cut(name, ":")
	return tag
}

func neverReady(image string) bool { return strings.Contains(tag(image), "never-ready") }

func crashes(image string) bool { return strings.Contains(tag(image), "crash") }

// look is how a command that looks into an image ends: what it writes into its termination message, or why it does not start.
func look(image string) (string, bool) {
	switch {
	case strings.Contains(tag(image), "no-shell"):
		return `exec: "/bin/sh": stat /bin/sh: no such file or directory`, false
	case strings.Contains(tag(image), "incomplete"):
		return "missing /usr/bin/virt-tail\nlooked\n", true
	}
	return "qemu QEMU emulator version 10.1.0\nlibvirt 11.9.0\nlooked\n", true
}

func imageID(image string) string {
	if strings.Contains(image, "@sha256:") {
		return image
	}
	sum := sha256.Sum256([]byte(image))
	return strings.TrimSuffix(image, ":"+tag(image)) + "@sha256:" + hex.EncodeToString(sum[:])
}

// imageSize is made up, but the same each time: 100 to 612 MB.
func imageSize(image string) int64 {
	sum := sha256.Sum256([]byte(image))
	return 100_000_000 + int64(sum[0])*2_000_000
}

// images are the images on each node that this kubelet pulled or found in the node's status.
type images struct {
	nodes sync.Map // of node name: *nodeImages
}

// nodeImages stays locked while it is published, so that an older list never overwrites a newer one.
type nodeImages struct {
	mutex sync.Mutex
	known map[string]bool
}

func (i *images) of(node *corev1.Node) *nodeImages {
	found, ok := i.nodes.Load(node.Name)
	if !ok {
		fresh := &nodeImages{known: map[string]bool{}}
		for _, image := range node.Status.Images {
			for _, name := range image.Names {
				fresh.known[name] = true
			}
		}
		found, _ = i.nodes.LoadOrStore(node.Name, fresh)
	}
	return found.(*nodeImages)
}

func (i *images) has(node *corev1.Node, image string) bool {
	on := i.of(node)
	on.mutex.Lock()
	defer on.mutex.Unlock()
	return on.known[image]
}

// add publishes the node's whole list if any of the images is new.
func (i *images) add(node *corev1.Node, pulled []string, publish func([]corev1.ContainerImage) error) error {
	on := i.of(node)
	on.mutex.Lock()
	defer on.mutex.Unlock()
	grown := false
	for _, image := range pulled {
		if !on.known[image] {
			on.known[image], on.known[imageID(image)], grown = true, true, true
		}
	}
	if !grown {
		return nil
	}
	err := publish(listed(on.known))
	if err != nil {
		i.forget(node.Name)
	}
	return err
}

// forget drops what is known of a node, so that its status is read again.
func (i *images) forget(node string) { i.nodes.Delete(node) }

func listed(known map[string]bool) []corev1.ContainerImage {
	var list []corev1.ContainerImage
	for image := range known {
		if id := imageID(image); id != image {
			list = append(list, corev1.ContainerImage{Names: []string{id, image}, SizeBytes: imageSize(image)})
		}
	}
	sort.Slice(list, func(a, b int) bool { return list[a].Names[1] < list[b].Names[1] })
	return list
}
