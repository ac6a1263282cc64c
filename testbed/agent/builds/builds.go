// SPDX-License-Identifier: GPL-3.0-or-later
// Copyright (c) 2026, the virtpools.kubevirt authors

package builds

import (
	"context"
	"log/slog"

	crdclient "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"virtpools.io/controlplane/agent/webhook"
)

// Account is the ServiceAccount of virt-operator, which finds the API server at this package's address.
const Account = operatorAccount

// Options say where things are.
type Options struct {
	// Namespace is KubeVirt's.
	Namespace string
	// Server and Authority are the API server's.
	Server    string
	Authority []byte
	// Operator is where virt-operator listens, and Front where the API server is to find its webhooks.
	Operator, Front string
}

// Player is everything that a build adds.
type Player struct {
	*Operator
	options Options
	hooks   *webhook.Server
}

// New makes it; it does nothing yet.
func New(log *slog.Logger, name string, options Options, client kubernetes.Interface, dynamic dynamic.Interface) (*Player, error) {
	build, err := Find(name)
	if err != nil {
		return nil, err
	}
	hooks, err := webhook.NewServer(log)
	if err != nil {
		return nil, err
	}
	n := &Player{Operator: NewOperator(log, build, options.Namespace, client, dynamic), options: options, hooks: hooks}
	api, err := n.apiServer()
	if err != nil {
		return nil, err
	}
	hooks.Handle("/", api)
	return n, nil
}

// Build is the one that is played.
func (n *Player) Build() Build { return n.build }

// Server is where virt-operator is to find the API server, and Authority whom it must trust.
func (n *Player) Server() (address string, authority []byte) {
	return n.hooks.Address(), n.hooks.Authority()
}

// Fronted tells whether the API server must find virt-operator's webhooks at the front.
func (n *Player) Fronted() bool { return n.build.Field != "" }

// Serve answers until the context ends.
func (n *Player) Serve(ctx context.Context) error {
	if n.Fronted() {
		go func() {
			if err := n.serveFront(ctx); err != nil {
				n.log.Error("no front of virt-operator's webhooks", "error", err)
			}
		}()
	}
	return n.hooks.Serve(ctx)
}

// Install registers the webhooks and then gives the cluster the field, or the definition of pool objects.
func (n *Player) Install(ctx context.Context, definitions crdclient.Interface) error {
	for _, mutation := range n.mutations() {
		if err := n.hooks.RegisterMutation(ctx, n.client, mutation); err != nil {
			return err
		}
	}
	if n.build.Field == "" {
		if err := n.hooks.Register(ctx, n.client, n.poolRule()); err != nil {
			return err
		}
	}
	return n.build.Define(ctx, definitions)
}
