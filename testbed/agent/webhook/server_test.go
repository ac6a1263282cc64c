// SPDX-License-Identifier: GPL-3.0-or-later
// Copyright (c) 2026, the virtpools.kubevirt authors

package webhook

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http/httptest"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// ask posts a review and reads the answer into it.
func ask(t *testing.T, s *Server, path string, review any) {
	t.Helper()
	body, err := json.Marshal(review)
	if err != nil {
		t.Fatal(err)
	}
	answer := httptest.NewRecorder()
	s.mux.ServeHTTP(answer, httptest.NewRequest("POST", path, bytes.NewReader(body)))
	if err := json.Unmarshal(answer.Body.Bytes(), review); err != nil {
		t.Fatalf("%s: %v", answer.Body, err)
	}
}

func server(t *testing.T) *Server {
	t.Helper()
	s, err := NewServer(slog.Default())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.listener.Close() })
	return s
}

func TestConversion(t *testing.T) {
	s := server(t)
	conversion := s.ServeConversion("/convert", func(object map[string]any, apiVersion string) error {
		if object["bad"] == true {
			return errors.New("cannot")
		}
		object["apiVersion"] = apiVersion
		return nil
	})
	if *conversion.Webhook.ClientConfig.URL != s.Address()+"/convert" {
		t.Errorf("URL %s", *conversion.Webhook.ClientConfig.URL)
	}
	for given, want := range map[string]string{
		`{"apiVersion":"g/v1","number":3}`: `{"apiVersion":"g/v2","number":3}`,
		`{"bad":true}`:                     "",
	} {
		review := &apiextensions.ConversionReview{Request: &apiextensions.ConversionRequest{
			UID: "1", DesiredAPIVersion: "g/v2", Objects: []runtime.RawExtension{{Raw: []byte(given)}},
		}}
		ask(t, s, "/convert", review)
		response := review.Response
		if response.UID != "1" {
			t.Errorf("UID %s", response.UID)
		}
		if want == "" {
			if response.Result.Status != "Failure" || response.Result.Message != "cannot" {
				t.Errorf("%s: %v", given, response.Result)
			}
		} else if response.Result.Status != "Success" || string(response.ConvertedObjects[0].Raw) != want {
			t.Errorf("%s: %v, %s", given, response.Result, response.ConvertedObjects[0].Raw)
		}
	}
}

func TestWarnings(t *testing.T) {
	s := server(t)
	s.mux.HandleFunc("/check", s.handle(func(context.Context, *admissionv1.AdmissionRequest) ([]string, error) {
		return []string{"ignored"}, nil
	}))
	review := &admissionv1.AdmissionReview{Request: &admissionv1.AdmissionRequest{UID: "1"}}
	ask(t, s, "/check", review)
	if !review.Response.Allowed || len(review.Response.Warnings) != 1 {
		t.Errorf("answer %v", review.Response)
	}
}
