// SPDX-License-Identifier: GPL-3.0-or-later
// Copyright (c) 2026, the virtpools.kubevirt authors

package builds

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

const (
	// updatePath is where virt-operator's webhook checks changes of the KubeVirt object.
	updatePath         = "/kubevirt-validate-update"
	webhookPort        = "8444"
	operatorCertSecret = "kubevirt-operator-certs"
	daemonSetsPath     = "/apis/apps/v1/daemonsets"
)

// front stands before virt-operator's webhooks. The stock one refuses every field of the KubeVirt object that it does not know, so
// it must not see the list; the build's own rules are checked here, under the same webhook's name.
func (n *Player) front() http.Handler {
	far := &url.URL{Scheme: "https", Host: net.JoinHostPort(n.options.Operator, webhookPort)}
	proxy := &httputil.ReverseProxy{
		Rewrite: func(request *httputil.ProxyRequest) { request.SetURL(far) },
		// Both ends are on this machine.
		Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}, //nolint:gosec
	}
	return http.HandlerFunc(func(writer http.ResponseWriter, request *http.Request) {
		if request.URL.Path == updatePath {
			refusal, err := n.strip(request)
			if err != nil {
				http.Error(writer, err.Error(), http.StatusBadRequest)
				return
			}
			if refusal != nil {
				writer.Header().Set("Content-Type", "application/json")
				_ = json.NewEncoder(writer).Encode(refusal)
				return
			}
		}
		proxy.ServeHTTP(writer, request)
	})
}

// strip takes the list out of a review of a KubeVirt object, or refuses it.
func (n *Player) strip(request *http.Request) (*admissionv1.AdmissionReview, error) {
	body, err := io.ReadAll(request.Body)
	if err != nil {
		return nil, err
	}
	var review admissionv1.AdmissionReview
	if err := json.Unmarshal(body, &review); err != nil || review.Request == nil {
		return nil, fmt.Errorf("no admission review: %w", err)
	}
	object, before := &unstructured.Unstructured{}, &unstructured.Unstructured{}
	if err := errors.Join(json.Unmarshal(review.Request.Object.Raw, &object.Object), json.Unmarshal(review.Request.OldObject.Raw, &before.Object)); err != nil {
		return nil, err
	}
	if refusal := n.build.refuseUpdate(object, before); refusal != nil {
		review.Response = &admissionv1.AdmissionResponse{UID: review.Request.UID, Result: &metav1.Status{
			Message: refusal.Error(), Reason: metav1.StatusReasonInvalid, Code: http.StatusUnprocessableEntity,
		}}
		review.Request = nil
		return &review, nil
	}
	unstructured.RemoveNestedField(object.Object, "spec", n.build.Field)
	unstructured.RemoveNestedField(before.Object, "spec", n.build.Field)
	var err1, err2 error
	review.Request.Object.Raw, err1 = json.Marshal(object.Object)
	review.Request.OldObject.Raw, err2 = json.Marshal(before.Object)
	if err := errors.Join(err1, err2); err != nil {
		return nil, err
	}
	if body, err = json.Marshal(review); err != nil {
		return nil, err
	}
	request.Body, request.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	request.Header.Set("Content-Length", fmt.Sprint(len(body)))
	return nil, nil
}

// serveFront answers until the context ends, with virt-operator's own certificate.
func (n *Player) serveFront(ctx context.Context) error {
	certificate := func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
		secret, err := n.client.CoreV1().Secrets(n.options.Namespace).Get(ctx, operatorCertSecret, metav1.GetOptions{})
		if err != nil {
			return nil, err
		}
		pair, err := tls.X509KeyPair(secret.Data["tls.crt"], secret.Data["tls.key"])
		return &pair, err
	}
	server := &http.Server{
		Addr: net.JoinHostPort(n.options.Front, webhookPort), Handler: n.front(), ReadHeaderTimeout: 10 * time.Second,
		TLSConfig: &tls.Config{GetCertificate: certificate, MinVersion: tls.VersionTLS12},
	}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	if err := server.ListenAndServeTLS("", ""); err != http.ErrServerClosed {
		return err
	}
	return nil
}

// apiServer leads virt-operator to the API server, and hides the DaemonSets of pools from it: it would delete what it does not know.
func (n *Player) apiServer() (http.Handler, error) {
	far, err := url.Parse(n.options.Server)
	if err != nil {
		return nil, err
	}
	trusted := x509.NewCertPool()
	trusted.AppendCertsFromPEM(n.options.Authority)
	return &httputil.ReverseProxy{
		Rewrite: func(request *httputil.ProxyRequest) {
			request.SetURL(far)
			if request.In.URL.Path == daemonSetsPath {
				request.Out.URL.RawQuery = n.hidden(request.In.URL.Query()).Encode()
			}
		},
		Transport: &http.Transport{
			TLSClientConfig: &tls.Config{RootCAs: trusted, MinVersion: tls.VersionTLS12}, ForceAttemptHTTP2: true, MaxIdleConnsPerHost: 16,
		},
		FlushInterval: -1, // watches
	}, nil
}

func (n *Player) hidden(query url.Values) url.Values {
	none := "!" + n.build.Label
	if selector := query.Get("labelSelector"); selector != "" {
		none = selector + "," + none
	}
	query.Set("labelSelector", none)
	return query
}
