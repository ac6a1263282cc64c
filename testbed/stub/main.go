// SPDX-License-Identifier: GPL-3.0-or-later
// Copyright (c) 2026, the virtpools.kubevirt authors

// Command stub is all that is in two images of the kind cluster: in that of virt-exportproxy, which has nothing to do there, and
// in the pause image. It does what the name says under which it is called.
package main

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"math/big"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"
)

func main() {
	if err := run(filepath.Base(os.Args[0])); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(name string) error {
	switch name {
	case "pause":
		return untilToldToEnd()
	case "virt-exportproxy":
		return answerProbes(":8443")
	}
	return fmt.Errorf("the stub does not know what %s is to do", name)
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

// untilToldToEnd waits as the first process of a pod: nothing else ends it, and it reaps what ends.
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
