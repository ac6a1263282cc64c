// SPDX-License-Identifier: GPL-3.0-or-later
// Copyright (c) 2026, the virtpools.kubevirt authors

package webhook

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net"
	"net/http"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	admissionv1 "k8s.io/api/admission/v1"
	registration "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// Mutate changes an object in place.
type Mutate func(object map[string]any)

// Mutation says which requests' objects are changed.
type Mutation struct {
	Name, Path string
	Group      string
	Versions   []string
	Resource   string
	Operations []registration.OperationType
	Mutate     Mutate
}

// Mutations are the webhooks of one configuration.
type Mutations struct {
	Configuration string
	Mutations     []Mutation
}

// RegisterMutations serves mutations and tells the API server of them.
func (s *Server) RegisterMutations(ctx context.Context, client kubernetes.Interface, mutations Mutations) error {
	configuration := &registration.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: mutations.Configuration}}
	for _, each := range mutations.Mutations {
		s.mux.HandleFunc(each.Path, s.review(func(_ context.Context, request *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
			return mutated(request, each.Mutate)
		}))
		url := s.base + each.Path
		configuration.Webhooks = append(configuration.Webhooks, registration.MutatingWebhook{
			Name:         each.Name,
			ClientConfig: registration.WebhookClientConfig{URL: &url, CABundle: s.authority},
			Rules: []registration.RuleWithOperations{{
				Operations: each.Operations,
				Rule: registration.Rule{
					APIGroups: []string{each.Group}, APIVersions: each.Versions, Resources: []string{each.Resource},
				},
			}},
			FailurePolicy:           new(registration.Fail),
			SideEffects:             new(registration.SideEffectClassNone),
			TimeoutSeconds:          new(int32(10)),
			AdmissionReviewVersions: []string{"v1"},
		})
	}
	api := client.AdmissionregistrationV1().MutatingWebhookConfigurations()
	_, err := api.Create(ctx, configuration, metav1.CreateOptions{})
	if !apierrors.IsAlreadyExists(err) {
		return err
	}
	live, err := api.Get(ctx, configuration.Name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	live.Webhooks = configuration.Webhooks
	_, err = api.Update(ctx, live, metav1.UpdateOptions{})
	return err
}

func mutated(request *admissionv1.AdmissionRequest, mutate Mutate) *admissionv1.AdmissionResponse {
	object := map[string]any{}
	if err := json.Unmarshal(request.Object.Raw, &object); err != nil {
		return answer(request, err)
	}
	mutate(object)
	response := answer(request, nil)
	after, err := json.Marshal(object)
	if err == nil {
		after, err = operations(request.Object.Raw, after)
	}
	if err != nil {
		return answer(request, err)
	}
	response.Patch, response.PatchType = after, new(admissionv1.PatchTypeJSONPatch)
	return response
}

// operations replaces the parts at the top of an object that differ: a JSON patch is all that webhooks may answer.
func operations(before, after []byte) ([]byte, error) {
	change, err := jsonpatch.CreateMergePatch(before, after)
	if err != nil {
		return nil, err
	}
	changed, whole := map[string]json.RawMessage{}, map[string]json.RawMessage{}
	if err := json.Unmarshal(change, &changed); err != nil {
		return nil, err
	}
	if err := json.Unmarshal(after, &whole); err != nil {
		return nil, err
	}
	list := []map[string]any{}
	for field := range changed {
		list = append(list, map[string]any{"op": "add", "path": "/" + field, "value": whole[field]})
	}
	return json.Marshal(list)
}

// HandleFunc serves something else than webhooks on the same port.
func (s *Server) HandleFunc(pattern string, handler http.HandlerFunc) {
	s.mux.HandleFunc(pattern, handler)
}

// Port is where the server listens.
func (s *Server) Port() int { return s.listener.Addr().(*net.TCPAddr).Port }

// Authority is the certificate that a client must trust, in the form that API objects have it.
func (s *Server) Authority() string { return base64.StdEncoding.EncodeToString(s.authority) }

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
		writer.Header().Set("Content-Type", "application/json")
		if err := json.NewEncoder(writer).Encode(review); err != nil {
			s.log.Warn("webhook answer lost", "error", err)
		}
	}
}
