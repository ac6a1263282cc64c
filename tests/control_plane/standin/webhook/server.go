// SPDX-License-Identifier: GPL-3.0-or-later
// Copyright (c) 2026, the virtpools.kubevirt authors

// Package webhook answers the API server's questions about KubeVirt and HyperConverged objects, from a local port.
package webhook

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	registration "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// Check refuses a request with an error, whose text the user sees.
type Check func(ctx context.Context, request *admissionv1.AdmissionRequest) error

// Rule says which requests are asked about.
type Rule struct {
	// Configuration and Name are those of the real webhooks.
	Configuration, Name string
	Path                string
	Group               string
	Versions            []string
	Resource            string
	Operations          []registration.OperationType
	Check               Check
}

// Server serves the checks.
type Server struct {
	log      *slog.Logger
	listener net.Listener
	authority,
	certificate []byte
	key  *ecdsa.PrivateKey
	mux  *http.ServeMux
	base string
}

// NewServer listens on a free local port, with a certificate of its own making, which also holds for the names.
func NewServer(log *slog.Logger, names ...string) (*Server, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := &Server{log: log, listener: listener, mux: http.NewServeMux(), base: "https://" + listener.Addr().String()}
	if err := s.makeCertificate(names); err != nil {
		return nil, err
	}
	return s, nil
}

func (s *Server) makeCertificate(names []string) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(now.UnixNano()), Subject: pkix.Name{CommonName: "standin"},
		NotBefore: now.Add(-time.Hour), NotAfter: now.AddDate(1, 0, 0),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, DNSNames: names, BasicConstraintsValid: true, IsCA: true,
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	s.certificate, err = x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	s.key = key
	s.authority = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.certificate})
	return err
}

// Serve answers until the context ends.
func (s *Server) Serve(ctx context.Context) error {
	server := &http.Server{
		Handler: s.mux, ReadHeaderTimeout: 10 * time.Second,
		TLSConfig: &tls.Config{
			Certificates: []tls.Certificate{{Certificate: [][]byte{s.certificate}, PrivateKey: s.key}},
			MinVersion:   tls.VersionTLS12,
		},
	}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	if err := server.ServeTLS(s.listener, "", ""); err != http.ErrServerClosed {
		return err
	}
	return nil
}

// Register serves a rule and tells the API server of it.
func (s *Server) Register(ctx context.Context, client kubernetes.Interface, rule Rule) error {
	s.mux.HandleFunc(rule.Path, s.handle(rule.Check))
	url := s.base + rule.Path
	configuration := &registration.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: rule.Configuration},
		Webhooks: []registration.ValidatingWebhook{{
			Name:         rule.Name,
			ClientConfig: registration.WebhookClientConfig{URL: &url, CABundle: s.authority},
			Rules: []registration.RuleWithOperations{{
				Operations: rule.Operations,
				Rule: registration.Rule{
					APIGroups: []string{rule.Group}, APIVersions: rule.Versions, Resources: []string{rule.Resource},
				},
			}},
			FailurePolicy:           new(registration.Fail),
			SideEffects:             new(registration.SideEffectClassNone),
			TimeoutSeconds:          new(int32(10)),
			AdmissionReviewVersions: []string{"v1"},
		}},
	}
	return replace(ctx, client, configuration)
}

// replace: the port and the certificate are new with every start.
func replace(ctx context.Context, client kubernetes.Interface, wanted *registration.ValidatingWebhookConfiguration) error {
	api := client.AdmissionregistrationV1().ValidatingWebhookConfigurations()
	_, err := api.Create(ctx, wanted, metav1.CreateOptions{})
	if !apierrors.IsAlreadyExists(err) {
		return err
	}
	live, err := api.Get(ctx, wanted.Name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	live.Webhooks = wanted.Webhooks
	_, err = api.Update(ctx, live, metav1.UpdateOptions{})
	return err
}

func (s *Server) handle(check Check) http.HandlerFunc {
	return s.review(func(ctx context.Context, request *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
		return answer(request, check(ctx, request))
	})
}

func answer(request *admissionv1.AdmissionRequest, refusal error) *admissionv1.AdmissionResponse {
	response := &admissionv1.AdmissionResponse{UID: request.UID, Allowed: refusal == nil}
	if refusal != nil {
		response.Result = &metav1.Status{Message: refusal.Error(), Reason: metav1.StatusReasonInvalid, Code: http.StatusUnprocessableEntity}
	}
	return response
}
