// SPDX-License-Identifier: GPL-3.0-or-later
// Copyright (c) 2026, the virtpools.kubevirt authors

// Command agent plays nodes on a control plane without kubelets, and runs KubeVirt's own programs there. See README.md.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	crdclient "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
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

	"virtpools.io/controlplane/agent/builds"
	"virtpools.io/controlplane/agent/guest"
	"virtpools.io/controlplane/agent/handler"
	"virtpools.io/controlplane/agent/hco"
	"virtpools.io/controlplane/agent/kubelet"
	"virtpools.io/controlplane/agent/kubevirt"
	"virtpools.io/controlplane/agent/process"
	"virtpools.io/controlplane/agent/readmission"
	"virtpools.io/controlplane/agent/webhook"
)

type options struct {
	kubeconfig, logLevel, readyFile string
	namespace, programs, egress     string
	network, build                  string
	hco                             bool
	start, stop, ready              float64
	heartbeatDelay, migration       time.Duration
}

func main() {
	if len(os.Args) > 3 && os.Args[1] == process.InNamespace {
		fatal(process.Become(os.Args[2], os.Args[3], os.Args[4:]))
	}
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
	fmt.Fprintln(os.Stderr, "agent:", err)
	os.Exit(1)
}

func parse() options {
	var o options
	flag.StringVar(&o.kubeconfig, "kubeconfig", "", "kubeconfig of an administrator")
	flag.StringVar(&o.logLevel, "log-level", "info", "debug, info, warn or error")
	flag.StringVar(&o.readyFile, "ready-file", "", "written once nodes can run pods")
	flag.StringVar(&o.namespace, "namespace", "kubevirt", "KubeVirt's namespace")
	flag.StringVar(&o.programs, "programs", "", "folder with a folder of KubeVirt's programs for each of its versions")
	flag.StringVar(&o.egress, "egress", "", "socket at which the API server asks for connections to pods")
	flag.StringVar(&o.network, "network", "127.64.0", "first part of the loopback addresses on which KubeVirt's programs listen")
	flag.StringVar(&o.build, "build", "", "play a build of KubeVirt with pools of its own: additionalVirtHandlers, virtHandlerPools or WorkerPool")
	flag.BoolVar(&o.hco, "hco", false, "play HCO")
	flag.Float64Var(&o.start, "start-seconds", 0.3, "how long a pod takes to start")
	flag.Float64Var(&o.stop, "stop-seconds", 0.3, "how long a pod takes to stop")
	flag.Float64Var(&o.ready, "ready-seconds", 0, "how long a handler runs before it is Ready (really 15 to 20)")
	flag.DurationVar(&o.heartbeatDelay, "heartbeat-delay", time.Second,
		"from a handler's Ready, or with --ready-seconds from its start, to its first heartbeat (really 1s from its start)")
	flag.DurationVar(&o.migration, "migration-duration", time.Second, "how long a migration runs once its target is there")
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
	a, err := newAgent(log, o, config)
	if err != nil {
		return err
	}
	return a.run(ctx)
}

// agent holds all that it plays, and what they share.
type agent struct {
	log      *slog.Logger
	options  options
	config   *rest.Config
	client   kubernetes.Interface
	dynamic  dynamic.Interface
	shared   informers.SharedInformerFactory
	custom   dynamicinformer.DynamicSharedInformerFactory
	recorder func(component string) record.EventRecorder
	group    sync.WaitGroup
}

func newAgent(log *slog.Logger, o options, config *rest.Config) (*agent, error) {
	a := &agent{log: log, options: o, config: config}
	var err error
	if a.dynamic, err = dynamic.NewForConfig(config); err != nil {
		return nil, err
	}
	binary := rest.CopyConfig(config)
	binary.ContentType = "application/vnd.kubernetes.protobuf"
	if a.client, err = kubernetes.NewForConfig(binary); err != nil {
		return nil, err
	}
	a.shared = informers.NewSharedInformerFactoryWithOptions(a.client, 0, informers.WithTransform(withoutManagedFields))
	a.custom = dynamicinformer.NewDynamicSharedInformerFactory(a.dynamic, 0)
	a.recorder = recorders(a.client)
	return a, nil
}

// withoutManagedFields halves the caches' memory for a big cluster.
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

func (a *agent) run(ctx context.Context) error {
	pods, nodes := a.shared.Core().V1().Pods().Informer(), a.shared.Core().V1().Nodes().Informer()
	for _, indexers := range []cache.Indexers{kubelet.Indexers(), guest.Indexers(), process.Indexers()} {
		if err := pods.AddIndexers(indexers); err != nil {
			return err
		}
	}
	own, err := a.build()
	if err != nil {
		return err
	}
	processes := a.processes(own)
	k, err1 := kubelet.New(a.log.With("program", "kubelet"), a.client,
		kubelet.Delays{Start: seconds(a.options.start), Stop: seconds(a.options.stop), HandlerReady: seconds(a.options.ready)},
		processes, pods, nodes)
	h, err2 := handler.New(a.log.With("program", "virt-handler"), a.client, a.recorder("virt-handler"),
		handler.Options{
			Namespace: a.options.namespace, HeartbeatDelay: a.options.heartbeatDelay, BeforeReady: a.options.ready > 0,
		}, pods, nodes)
	r, err3 := readmission.New(a.log.With("program", "readmission"), a.client, pods, nodes)
	if err := errors.Join(err1, err2, err3); err != nil {
		return err
	}
	if own != nil {
		// Before anything writes: what virt-operator writes first must have been changed already.
		if err := a.addBuild(ctx, own, pods); err != nil {
			return err
		}
	}
	a.shared.Start(ctx.Done())
	a.shared.WaitForCacheSync(ctx.Done())
	egress := process.NewEgress(a.log.With("program", "egress"), processes, pods.GetIndexer())
	a.start(func() {
		if err := egress.Serve(ctx, a.options.egress); err != nil {
			a.log.Error("no egress", "error", err)
		}
	})
	a.start(func() { k.Run(ctx) })
	a.start(func() { h.Run(ctx) })
	a.start(func() { r.Run(ctx) })
	a.start(func() {
		a.later(ctx, "guests", kubevirt.VMIResource, func() error { return a.addGuests(ctx, pods, nodes) })
	})
	if a.options.hco {
		a.start(func() { a.later(ctx, "hco", kubevirt.Resource, func() error { return a.addHCO(ctx, nodes) }) })
	}
	if err := os.WriteFile(a.options.readyFile, []byte("ready\n"), 0o644); err != nil {
		return err
	}
	<-ctx.Done()
	a.group.Wait()
	return nil
}

func (a *agent) start(process func()) { a.group.Go(process) }

func (a *agent) processes(own *builds.Player) *process.Runtime {
	cluster := process.Cluster{Server: a.config.Host, Authority: a.config.CAData}
	options := process.Options{
		Programs: a.options.programs, Dir: filepath.Dir(a.options.readyFile), Network: a.options.network,
	}
	if own != nil {
		address, authority := own.Server()
		options.Accounts = map[string]process.Cluster{builds.Account: {Server: address, Authority: authority}}
		if own.Fronted() {
			options.Fronts = map[string]string{operator: a.front()}
		}
	}
	return process.New(a.log.With("program", "runtime"), a.client, cluster, options)
}

const operator = "virt-operator"

// front is the address at which the API server finds virt-operator's webhooks on a build whose webhooks have more rules.
func (a *agent) front() string { return a.options.network + ".6" }

// build makes what a build of KubeVirt adds; nil for the stock one.
func (a *agent) build() (*builds.Player, error) {
	if a.options.build == "" {
		return nil, nil
	}
	return builds.New(a.log.With("program", "build"), a.options.build, builds.Options{
		Namespace: a.options.namespace, Server: a.config.Host, Authority: a.config.CAData,
		Operator: process.Address(a.options.network, operator), Front: a.front(),
	}, a.client, a.dynamic)
}

func (a *agent) addBuild(ctx context.Context, own *builds.Player, pods cache.SharedIndexInformer) error {
	definitions, err := crdclient.NewForConfig(a.config)
	if err != nil {
		return err
	}
	a.start(func() {
		if err := own.Serve(ctx); err != nil {
			a.log.Error("webhooks ended", "error", err)
		}
	})
	if err := own.Install(ctx, definitions); err != nil {
		return err
	}
	if err := own.Watch(pods, a.shared.Apps().V1().DaemonSets().Informer()); err != nil {
		return err
	}
	a.start(func() { own.Run(ctx) })
	a.start(func() { a.later(ctx, "build", kubevirt.Resource, func() error { return a.watchPools(ctx, own) }) })
	return nil
}

// watchPools lets the build's operator know of changes of the KubeVirt object and of pool objects.
func (a *agent) watchPools(ctx context.Context, own *builds.Player) error {
	watched := []cache.SharedIndexInformer{a.custom.ForResource(kubevirt.Resource).Informer()}
	if !own.Fronted() {
		watched = append(watched, a.custom.ForResource(builds.PoolResource).Informer())
	}
	if err := own.Watch(watched...); err != nil {
		return err
	}
	a.custom.Start(ctx.Done())
	return nil
}

// later starts what needs a resource that the cluster has only once KubeVirt is installed.
func (a *agent) later(ctx context.Context, name string, resource schema.GroupVersionResource, start func() error) {
	for ctx.Err() == nil {
		if _, err := a.dynamic.Resource(resource).List(ctx, metav1.ListOptions{Limit: 1}); err == nil {
			if err := start(); err != nil {
				a.log.Error("not started", "program", name, "error", err)
			}
			return
		}
		select {
		case <-ctx.Done():
		case <-time.After(300 * time.Millisecond):
		}
	}
}

func (a *agent) addGuests(ctx context.Context, pods, nodes cache.SharedIndexInformer) error {
	vmis := a.custom.ForResource(kubevirt.VMIResource).Informer()
	guests, err := guest.New(a.log.With("program", "guests"), a.config, a.client,
		guest.Options{Namespace: a.options.namespace, Migration: a.options.migration}, vmis, pods, nodes)
	if err != nil {
		return err
	}
	a.custom.Start(ctx.Done())
	a.custom.WaitForCacheSync(ctx.Done())
	a.start(func() { guests.Run(ctx) })
	return nil
}

// addHCO adds the operator with its webhooks, which finds the schema of KubeVirt objects in the cluster.
func (a *agent) addHCO(ctx context.Context, nodes cache.SharedIndexInformer) error {
	definitions, err := crdclient.NewForConfig(a.config)
	if err != nil {
		return err
	}
	prune, err := hco.Pruner(ctx, definitions)
	if err != nil {
		return err
	}
	hooks, err := webhook.NewServer(a.log)
	if err != nil {
		return err
	}
	conversion := hooks.ServeConversion(hco.ConversionPath, hco.Convert)
	a.start(func() {
		if err := hooks.Serve(ctx); err != nil {
			a.log.Error("webhooks ended", "error", err)
		}
	})
	if err := hco.Define(ctx, definitions, conversion); err != nil {
		return err
	}
	owned, kubeVirts := a.custom.ForResource(hco.Resource).Informer(), a.custom.ForResource(kubevirt.Resource).Informer()
	h, err := hco.New(a.log.With("program", "hco"), a.dynamic, a.recorder("hco"), prune, owned, kubeVirts, nodes)
	if err != nil {
		return err
	}
	if err := hooks.Register(ctx, a.client, h.Rule()); err != nil {
		return err
	}
	a.custom.Start(ctx.Done())
	a.custom.WaitForCacheSync(ctx.Done())
	a.start(func() { h.Run(ctx) })
	return hco.Create(ctx, a.dynamic, a.options.namespace)
}
