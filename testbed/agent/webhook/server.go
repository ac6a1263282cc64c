// SPDX-License-Identifier: GPL-3.0-or-later
// Copyright (c) 2026, the virtpools.kubevirt authors

// Package webhook answers the API server's questions about objects that are about to be stored, from a local port.
package webhook

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	registration "k8s.io/api/admissionregistration/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	kjson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/client-go/kubernetes"
)

// Check refuses a request with an error, whose text the user sees, or lets it pass with warnings.
type Check func(ctx context.Context, request *admissionv1.AdmissionRequest) ([]string, error)

// Rule says which requests the API server sends to the webhook.
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

// Operation is one of a JSON patch.
type Operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value,omitempty"`
}

// Change answers a request with what it changes in the object, or refuses it with an error.
type Change func(ctx context.Context, request *admissionv1.AdmissionRequest) ([]Operation, error)

// Mutation says which objects the API server has changed by the webhook before it stores them.
type Mutation struct {
	// Name is that of the webhook and of its configuration.
	Name       string
	Path       string
	Group      string
	Version    string
	Resource   string
	Operations []registration.OperationType
	// Condition is an expression on the request. Only if it is true the request is sent.
	Condition string
	Change    Change
}

// Convert brings an object to another API version, in place.
type Convert func(object map[string]any, apiVersion string) error

// Server serves checks, changes and conversions.
type Server struct {
	log      *slog.Logger
	listener net.Listener
	authority,
	certificate []byte
	key  *ecdsa.PrivateKey
	mux  *http.ServeMux
	base string
}

// NewServer listens on a free local port, with a self-signed certificate.
func NewServer(log *slog.Logger) (*Server, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := &Server{log: log, listener: listener, mux: http.NewServeMux(), base: "https://" + listener.Addr().String()}
	if err := s.makeCertificate(); err != nil {
		return nil, err
	}
	return s, nil
}

func (s *Server) makeCertificate() error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(now.UnixNano()), Subject: pkix.Name{CommonName: "agent"},
		NotBefore: now.Add(-time.Hour), NotAfter: now.AddDate(1, 0, 0),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, BasicConstraintsValid: true, IsCA: true,
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	s.certificate, err = x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	s.key = key
	s.authority = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.certificate})
	return err
}

// Handle serves something else at the same address, with the same certificate.
func (s *Server) Handle(path string, handler http.Handler) { s.mux.Handle(path, handler) }

// Address is where it serves.
func (s *Server) Address() string { return s.base }

// Authority is the certificate with which the server's own is to be checked.
func (s *Server) Authority() []byte { return s.authority }

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
			Name:                    rule.Name,
			ClientConfig:            registration.WebhookClientConfig{URL: &url, CABundle: s.authority},
			Rules:                   rules(rule.Operations, rule.Group, rule.Versions, rule.Resource),
			FailurePolicy:           new(registration.Fail),
			SideEffects:             new(registration.SideEffectClassNone),
			TimeoutSeconds:          new(int32(10)),
			AdmissionReviewVersions: []string{"v1"},
		}},
	}
	return replace(ctx, client, configuration)
}

func rules(operations []registration.OperationType, group string, versions []string, resource string) []registration.RuleWithOperations {
	return []registration.RuleWithOperations{{
		Operations: operations,
		Rule:       registration.Rule{APIGroups: []string{group}, APIVersions: versions, Resources: []string{resource}},
	}}
}

// ServeMutation serves a mutation that another component registers with the API server.
func (s *Server) ServeMutation(mutation Mutation) {
	s.mux.HandleFunc(mutation.Path, s.review(func(ctx context.Context, request *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
		operations, err := mutation.Change(ctx, request)
		return patched(answer(request, err), operations)
	}))
}

// RegisterMutation serves a mutation and tells the API server of it.
func (s *Server) RegisterMutation(ctx context.Context, client kubernetes.Interface, mutation Mutation) error {
	s.ServeMutation(mutation)
	url := s.base + mutation.Path
	webhooks := []registration.MutatingWebhook{{
		Name:                    mutation.Name,
		ClientConfig:            registration.WebhookClientConfig{URL: &url, CABundle: s.authority},
		Rules:                   rules(mutation.Operations, mutation.Group, []string{mutation.Version}, mutation.Resource),
		MatchConditions:         []registration.MatchCondition{{Name: "concerned", Expression: mutation.Condition}},
		FailurePolicy:           new(registration.Fail),
		SideEffects:             new(registration.SideEffectClassNone),
		TimeoutSeconds:          new(int32(10)),
		AdmissionReviewVersions: []string{"v1"},
	}}
	api := client.AdmissionregistrationV1().MutatingWebhookConfigurations()
	live, err := api.Get(ctx, mutation.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		wanted := &registration.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: mutation.Name}, Webhooks: webhooks}
		_, err = api.Create(ctx, wanted, metav1.CreateOptions{})
		return err
	}
	if err != nil {
		return err
	}
	live.Webhooks = webhooks
	_, err = api.Update(ctx, live, metav1.UpdateOptions{})
	return err
}

// ServeConversion serves the conversion of a kind's objects. It returns what the kind's definition needs for that.
func (s *Server) ServeConversion(path string, convert Convert) *apiextensions.CustomResourceConversion {
	s.mux.HandleFunc(path, func(writer http.ResponseWriter, request *http.Request) {
		var review apiextensions.ConversionReview
		if err := json.NewDecoder(request.Body).Decode(&review); err != nil || review.Request == nil {
			http.Error(writer, fmt.Sprintf("no conversion review: %v", err), http.StatusBadRequest)
			return
		}
		review.Response = converted(review.Request, convert)
		review.Request = nil
		s.write(writer, review)
	})
	url := s.base + path
	return &apiextensions.CustomResourceConversion{
		Strategy: apiextensions.WebhookConverter,
		Webhook: &apiextensions.WebhookConversion{
			ClientConfig:             &apiextensions.WebhookClientConfig{URL: &url, CABundle: s.authority},
			ConversionReviewVersions: []string{"v1"},
		},
	}
}

func converted(request *apiextensions.ConversionRequest, convert Convert) *apiextensions.ConversionResponse {
	response := &apiextensions.ConversionResponse{UID: request.UID, Result: metav1.Status{Status: metav1.StatusSuccess}}
	for _, given := range request.Objects {
		raw, err := convertedObject(given.Raw, request.DesiredAPIVersion, convert)
		if err != nil {
			failure := metav1.Status{Status: metav1.StatusFailure, Message: err.Error()}
			return &apiextensions.ConversionResponse{UID: request.UID, Result: failure}
		}
		response.ConvertedObjects = append(response.ConvertedObjects, runtime.RawExtension{Raw: raw})
	}
	return response
}

func convertedObject(raw []byte, apiVersion string, convert Convert) ([]byte, error) {
	var object map[string]any
	if err := kjson.Unmarshal(raw, &object); err != nil { // keeps whole numbers
		return nil, err
	}
	if err := convert(object, apiVersion); err != nil {
		return nil, err
	}
	return json.Marshal(object)
}

func patched(response *admissionv1.AdmissionResponse, operations []Operation) *admissionv1.AdmissionResponse {
	if len(operations) == 0 || !response.Allowed {
		return response
	}
	patch, err := json.Marshal(operations)
	if err != nil {
		response.Allowed, response.Result = false, &metav1.Status{Message: err.Error()}
		return response
	}
	response.Patch, response.PatchType = patch, new(admissionv1.PatchTypeJSONPatch)
	return response
}

// replace overwrites the configuration of an earlier start: each start has another port and certificate.
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
		warnings, err := check(ctx, request)
		response := answer(request, err)
		response.Warnings = warnings
		return response
	})
}

func answer(request *admissionv1.AdmissionRequest, refusal error) *admissionv1.AdmissionResponse {
	response := &admissionv1.AdmissionResponse{UID: request.UID, Allowed: refusal == nil}
	if refusal != nil {
		response.Result = &metav1.Status{Message: refusal.Error(), Reason: metav1.StatusReasonInvalid, Code: http.StatusUnprocessableEntity}
	}
	return response
}

// review answers an admission review.
func (s *Server) review(respond func(context.Context, *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse) http.HandlerFunc {
	return func(writer http.ResponseWriter, request *http.Request) {
		var review admissionv1.AdmissionReview
		if err := json.NewDecoder(request.Body).Decode(&review); err != nil || review.Request == nil {
			http.Error(writer, fmt.Sprintf("no admission review: %v", err), http.StatusBadRequest)
			return
		}
		review.Response = respond(request.Context(), review.Request)
		review.Request = nil
		s.write(writer, review)
	}
}

func (s *Server) write(writer http.ResponseWriter, review any) {
	writer.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(writer).Encode(review); err != nil {
		s.log.Warn("webhook answer lost", "error", err)
	}
}
