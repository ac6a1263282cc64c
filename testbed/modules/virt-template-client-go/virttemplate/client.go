// SPDX-License-Identifier: GPL-3.0-or-later
// Copyright (c) 2026, the virtpools.kubevirt authors

// Package virttemplate has as much of a client of VirtualMachineTemplates as KubeVirt's programs need to compile. They use
// it only with the feature gate Template.
package virttemplate

import (
	"errors"

	"k8s.io/client-go/rest"
)

type Client struct{}

func NewForConfig(*rest.Config) (*Client, error) {
	return nil, errors.New("this build has no client of VirtualMachineTemplates")
}

func (c *Client) TemplateV1beta1() *Client { return c }

func (c *Client) RESTClient() rest.Interface { return nil }
