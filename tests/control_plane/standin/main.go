// SPDX-License-Identifier: GPL-3.0-or-later
// Copyright (c) 2026, the virtpools.kubevirt authors

// Command standin plays KubeVirt on a control plane without kubelets. See README.md.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	crdclient "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/record"

	"virtpools.io/controlplane/standin/api"
	"virtpools.io/controlplane/standin/controller"
	"virtpools.io/controlplane/standin/handler"
	"virtpools.io/controlplane/standin/hco"
	"virtpools.io/controlplane/standin/install"
	"virtpools.io/controlplane/standin/kubelet"
	"virtpools.io/controlplane/standin/kubevirt"
	"virtpools.io/controlplane/standin/operator"
	"virtpools.io/controlplane/standin/webhook"
)

type options struct {
	kubeconfig, logLevel, readyFile string
	namespace, registry, version    string
	hco                             bool
	nativeFields                    []string
	settle, start, stop             float64
	heartbeatDelay, silence         time.Duration
	migrates, targetPatience        time.Duration
}

func main() {
	o := parse()
	var level slog.Level
	if err := level.UnmarshalText([]byte(o.logLevel)); err != nil {
		fatal(err)
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: level}))
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	if err := run(ctx, log, o); err != nil && !errors.Is(err, context.Canceled) {
		fatal(err)
	}
}

func fatal(err error) {
	fmt.Fprintln(os.Stderr, "standin:", err)
	os.Exit(1)
}

func parse() options {
	var o options
	flag.StringVar(&o.kubeconfig, "kubeconfig", "", "kubeconfig of an administrator")
	flag.StringVar(&o.logLevel, "log-level", "info", "debug, info, warn or error")
	flag.StringVar(&o.readyFile, "ready-file", "", "written once KubeVirt is deployed")
	flag.StringVar(&o.namespace, "namespace", "kubevirt", "KubeVirt's namespace")
	flag.StringVar(&o.registry, "registry", "stock.example/kubevirt", "registry in KubeVirt's image names")
	flag.StringVar(&o.version, "kubevirt-version", "v1.9.0", "version to install; upgrade by changing virt-operator's image")
	flag.BoolVar(&o.hco, "hco", false, "install through a HyperConverged object, and play HCO")
	flag.Func("native-field", "add this list to the KubeVirt object's schema, as some builds have it (repeatable)", func(value string) error {
		switch value {
		case "virtHandlerPools", "workerPools", "additionalVirtHandlers":
			o.nativeFields = append(o.nativeFields, value)
			return nil
		}
		return fmt.Errorf("want virtHandlerPools, workerPools or additionalVirtHandlers")
	})
	flag.Float64Var(&o.settle, "settle-seconds", 3, "about how long a change of the KubeVirt object takes to settle (really 7 to 15)")
	flag.Float64Var(&o.start, "start-seconds", 1, "how long a pod takes to start")
	flag.Float64Var(&o.stop, "stop-seconds", 1, "how long a pod takes to stop")
	flag.DurationVar(&o.heartbeatDelay, "heartbeat-delay", time.Second, "from a handler's Ready to its first heartbeat (really about 10s)")
	flag.DurationVar(&o.silence, "handler-silence", 5*time.Minute, "a node without heartbeat for this long gets unschedulable")
	flag.DurationVar(&o.migrates, "migration-duration", time.Second, "how long a migration runs once its target is there")
	flag.DurationVar(&o.targetPatience, "migration-target-timeout", 15*time.Second,
		"a migration fails whose target has not started by then (really 5m when it finds no node, else 15m)")
	flag.Parse()
	return o
}

func seconds(value float64) time.Duration { return time.Duration(value * float64(time.Second)) }

func run(ctx context.Context, log *slog.Logger, o options) error {
	config, err := clientcmd.BuildConfigFromFlags("", o.kubeconfig)
	if err != nil {
		return err
	}
	config.QPS, config.Burst = 500, 1000
	s, err := newStandin(log, o, config)
	if err != nil {
		return err
	}
	return s.run(ctx)
}

// standin is all the programs played, and what they share.
type standin struct {
	log       *slog.Logger
	options   options
	config    *rest.Config
	client    kubernetes.Interface
	dynamic   dynamic.Interface
	crds      crdclient.Interface
	webhooks  *webhook.Server
	shared    informers.SharedInformerFactory
	custom    dynamicinformer.DynamicSharedInformerFactory
	recorder  func(component string) record.EventRecorder
	processes []func(context.Context)
	rules     []webhook.Rule
}

func newStandin(log *slog.Logger, o options, config *rest.Config) (*standin, error) {
	s := &standin{log: log, options: o, config: config}
	var err error
	if s.dynamic, err = dynamic.NewForConfig(config); err != nil {
		return nil, err
	}
	if s.crds, err = crdclient.NewForConfig(config); err != nil {
		return nil, err
	}
	binary := rest.CopyConfig(config)
	binary.ContentType = "application/vnd.kubernetes.protobuf"
	if s.client, err = kubernetes.NewForConfig(binary); err != nil {
		return nil, err
	}
	if s.webhooks, err = webhook.NewServer(log, api.Name+"."+o.namespace+".svc"); err != nil {
		return nil, err
	}
	s.shared = informers.NewSharedInformerFactoryWithOptions(s.client, 0, informers.WithTransform(withoutManagedFields))
	s.custom = dynamicinformer.NewDynamicSharedInformerFactory(s.dynamic, 0)
	s.recorder = recorders(s.client)
	return s, nil
}

// withoutManagedFields halves what the caches hold of a big cluster.
func withoutManagedFields(object any) (any, error) {
	if meta, ok := object.(metav1.Object); ok {
		meta.SetManagedFields(nil)
	}
	return object, nil
}

func recorders(client kubernetes.Interface) func(string) record.EventRecorder {
	broadcaster := record.NewBroadcaster()
	broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: client.CoreV1().Events("")})
	kinds := runtime.NewScheme()
	_ = scheme.AddToScheme(kinds)
	return func(component string) record.EventRecorder {
		return broadcaster.NewRecorder(kinds, corev1.EventSource{Component: component})
	}
}

func (s *standin) run(ctx context.Context) error {
	clients := install.Clients{Kubernetes: s.client, Definitions: s.crds, Dynamic: s.dynamic}
	err := install.Platform(ctx, s.log, clients, install.Options{
		Namespace: s.options.namespace, Registry: s.options.registry, Version: s.options.version,
		HCO: s.options.hco, NativeFields: s.options.nativeFields,
	})
	if err != nil {
		return err
	}
	if err := s.assemble(); err != nil {
		return err
	}
	for _, rule := range s.rules {
		if err := s.webhooks.Register(ctx, s.client, rule); err != nil {
			return err
		}
	}
	if err := s.webhooks.RegisterMutations(ctx, s.client, api.Mutations(s.cpuModel)); err != nil {
		return err
	}
	subresources := api.New(s.log.With("program", api.Name), s.client, s.dynamic, s.webhooks)
	if err := subresources.Register(ctx, s.options.namespace, s.webhooks); err != nil {
		return err
	}
	s.shared.Start(ctx.Done())
	s.custom.Start(ctx.Done())
	s.shared.WaitForCacheSync(ctx.Done())
	s.custom.WaitForCacheSync(ctx.Done())
	var group sync.WaitGroup
	for _, process := range s.processes {
		group.Go(func() { process(ctx) })
	}
	if err := s.createUsersObject(ctx); err != nil {
		return err
	}
	if err := s.reportReady(ctx); err != nil {
		return err
	}
	<-ctx.Done()
	group.Wait()
	return nil
}

// cpuModel is what the KubeVirt object says that guests get; empty when it says nothing.
func (s *standin) cpuModel() string {
	objects, err := s.custom.ForResource(kubevirt.Resource).Lister().ByNamespace(s.options.namespace).List(labels.Everything())
	if err != nil || len(objects) == 0 {
		return ""
	}
	model, _, _ := unstructured.NestedString(objects[0].(*unstructured.Unstructured).Object, "spec", "configuration", "cpuModel")
	return model
}

func (s *standin) createUsersObject(ctx context.Context) error {
	if s.options.hco {
		return hco.Create(ctx, s.dynamic, s.options.namespace)
	}
	return install.KubeVirt(ctx, s.dynamic, s.options.namespace)
}

// reportReady waits for the phase, which stays Deployed whatever happens later: a restart among broken things is ready.
func (s *standin) reportReady(ctx context.Context) error {
	err := wait.PollUntilContextCancel(ctx, 200*time.Millisecond, true, func(context.Context) (bool, error) {
		objects, err := s.custom.ForResource(kubevirt.Resource).Lister().ByNamespace(s.options.namespace).List(labels.Everything())
		for _, object := range objects {
			phase, _, _ := unstructured.NestedString(object.(*unstructured.Unstructured).Object, "status", "phase")
			if phase == "Deployed" {
				return true, nil
			}
		}
		return false, err
	})
	if err != nil || s.options.readyFile == "" {
		return err
	}
	s.log.Info("ready")
	return os.WriteFile(s.options.readyFile, []byte("ready\n"), 0o644)
}

// assemble makes all the programs; none does anything before the caches are filled.
func (s *standin) assemble() error {
	pods, nodes := s.shared.Core().V1().Pods().Informer(), s.shared.Core().V1().Nodes().Informer()
	daemons, deploys := s.shared.Apps().V1().DaemonSets().Informer(), s.shared.Apps().V1().Deployments().Informer()
	kubevirts := s.custom.ForResource(kubevirt.Resource).Informer()
	if err := errors.Join(pods.AddIndexers(kubelet.Indexers()), pods.AddIndexers(controller.Indexers())); err != nil {
		return err
	}
	s.start(func(ctx context.Context) {
		if err := s.webhooks.Serve(ctx); err != nil {
			s.log.Error("webhooks ended", "error", err)
		}
	})
	s.rules = []webhook.Rule{webhook.KubeVirtRule()}
	return errors.Join(
		s.addKubelet(pods, nodes), s.addHandler(pods, nodes), s.addHCO(kubevirts),
		s.addOperator(kubevirts, pods, daemons, deploys), s.addController(kubevirts, pods, nodes, daemons, deploys),
	)
}

func (s *standin) start(process func(context.Context)) { s.processes = append(s.processes, process) }

func (s *standin) addKubelet(pods, nodes cache.SharedIndexInformer) error {
	delays := kubelet.Delays{Start: seconds(s.options.start), Stop: seconds(s.options.stop)}
	k, err := kubelet.New(s.log.With("program", "kubelet"), s.client, delays, pods, nodes)
	if err == nil {
		s.start(k.Run)
	}
	return err
}

func (s *standin) addHandler(pods, nodes cache.SharedIndexInformer) error {
	h, err := handler.New(s.log.With("program", "virt-handler"), s.client, s.recorder("virt-handler"),
		handler.Options{Namespace: s.options.namespace, HeartbeatDelay: s.options.heartbeatDelay}, pods, nodes)
	if err == nil {
		s.start(h.Run)
	}
	return err
}

func (s *standin) addOperator(kubevirts, pods, daemons, deploys cache.SharedIndexInformer) error {
	o, err := operator.New(s.log.With("program", "virt-operator"),
		operator.Options{Namespace: s.options.namespace, Settle: seconds(s.options.settle)},
		operator.Clients{
			Kubernetes: s.client, Dynamic: s.dynamic, Recorder: s.recorder("virt-operator"),
			KubeVirts: kubevirts, Pods: pods, Daemons: daemons, Deploys: deploys,
		})
	if err == nil {
		s.start(o.Run)
	}
	return err
}

// addController adds virt-controller, which acts as its own ServiceAccount wherever that matters to somebody.
func (s *standin) addController(kubevirts, pods, nodes, daemons, deploys cache.SharedIndexInformer) error {
	log := s.log.With("program", "virt-controller")
	own := rest.CopyConfig(s.config)
	own.Impersonate = rest.ImpersonationConfig{
		UserName: "system:serviceaccount:" + s.options.namespace + ":" + kubevirt.ControllerAccount,
		Groups:   []string{"system:serviceaccounts", "system:serviceaccounts:" + s.options.namespace, "system:authenticated"},
	}
	client, err := kubernetes.NewForConfig(own)
	if err != nil {
		return err
	}
	dyn, err := dynamic.NewForConfig(own)
	if err != nil {
		return err
	}
	platform := &controller.Platform{
		Log: log, Namespace: s.options.namespace, Kubernetes: client, Dynamic: dyn, Recorder: s.recorder(kubevirt.ControllerDeployment),
		Pods: pods, Nodes: nodes, Deployments: deploys, KubeVirts: kubevirts,
		VMs:        s.custom.ForResource(kubevirt.VMResource).Informer(),
		VMIs:       s.custom.ForResource(kubevirt.VMIResource).Informer(),
		Migrations: s.custom.ForResource(kubevirt.MigrationResource).Informer(),
	}
	n, err1 := controller.NewNodes(platform, s.options.silence, daemons)
	vmis, err2 := controller.NewVMIs(platform)
	vms, err3 := controller.NewVMs(platform)
	migrations, err4 := controller.NewMigrations(platform, controller.MigrationOptions{
		Duration: s.options.migrates, TargetTimeout: s.options.targetPatience,
	})
	updater, err5 := controller.NewUpdater(platform)
	if err := errors.Join(err1, err2, err3, err4, err5); err != nil {
		return err
	}
	s.rules = append(s.rules, migrations.Rule())
	for _, run := range []func(context.Context){n.Run, vmis.Run, vms.Run, migrations.Run, updater.Run} {
		s.start(run)
	}
	return nil
}

func (s *standin) addHCO(kubevirts cache.SharedIndexInformer) error {
	if !s.options.hco {
		return nil
	}
	prune, err := install.Pruner(s.options.nativeFields)
	if err != nil {
		return err
	}
	hyperConvergeds := s.custom.ForResource(hco.Resource).Informer()
	h, err := hco.New(s.log.With("program", "hco"), s.dynamic, s.recorder("hco"), prune, hyperConvergeds, kubevirts)
	if err == nil {
		s.start(h.Run)
		s.rules = append(s.rules, h.Rule())
	}
	return err
}
