// SPDX-License-Identifier: GPL-3.0-or-later
// Copyright (c) 2026, the virtpools.kubevirt authors

// Command stub is all that is in a launcher image of the kind cluster, in its pause image, and in that of virt-exportproxy,
// which has nothing to do there. virt-launcher itself cannot be built from Go modules, so pods with this image start and end
// as launcher pods do, but no guest ever boots.
// It does what the name says under which it is called.
package main

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	_ "embed"
	"fmt"
	"math/big"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

//go:embed domcapabilities.xml
var domCapabilities []byte

//go:embed features.xml
var features []byte

//go:embed capabilities.xml
var capabilities []byte

// The folder that a handler's init container and its virt-handler share.
const labels = "/var/lib/kubevirt-node-labeller"

func main() {
	arguments := append([]string{filepath.Base(os.Args[0])}, os.Args[1:]...)
	if arguments[0] == "sh" && len(arguments) > 2 && arguments[1] == "-c" {
		arguments = strings.Fields(arguments[2])
	}
	fmt.Printf("%s of image %q\n", arguments[0], os.Getenv("IMAGE"))
	if err := run(arguments[0]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(name string) error {
	switch name {
	case "true":
		return nil
	case "node-labeller.sh":
		return describeNode()
	case "pause", "sleep", "virt-launcher-monitor", "virt-tail":
		return untilToldToEnd()
	case "virt-exportproxy":
		return answerProbes(":8443")
	}
	return fmt.Errorf("the stub does not know what %s is to do", name)
}

// describeNode writes what libvirt would say about this machine, for virt-handler to label the node by.
func describeNode() error {
	for name, content := range map[string][]byte{
		"virsh_domcapabilities.xml": domCapabilities,
		"supported_features.xml":    features,
		"capabilities.xml":          capabilities,
	} {
		if err := os.WriteFile(filepath.Join(labels, name), content, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// answerProbes says yes to everybody who asks by HTTPS, with a certificate that nobody trusts.
func answerProbes(address string) error {
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return err
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().AddDate(1, 0, 0)}
	certificate, err := x509.CreateCertificate(rand.Reader, template, template, public, private)
	if err != nil {
		return err
	}
	server := &http.Server{
		Addr:    address,
		Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}),
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{
			{Certificate: [][]byte{certificate}, PrivateKey: private},
		}},
	}
	return server.ListenAndServeTLS("", "")
}

// untilToldToEnd waits as the first process of a container, or of a pod: nothing else ends it, and it reaps what ends.
func untilToldToEnd() error {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGCHLD)
	for received := range signals {
		if received != syscall.SIGCHLD {
			return nil
		}
		for {
			if pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil); pid <= 0 || err != nil {
				break
			}
		}
	}
	return nil
}
