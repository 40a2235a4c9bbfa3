package main

import (
	"context"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	composeloader "github.com/compose-spec/compose-go/v2/loader"
	composetypes "github.com/compose-spec/compose-go/v2/types"
	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/chart/v2/lint"
	"helm.sh/helm/v4/pkg/chart/v2/lint/support"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/kubernetes/scheme"
)

const chartFolder = "../deploy/helm/posthaste"

// all are values that use every part of the chart.
var all = map[string]any{
	"image":              map[string]any{"tag": "1.2.3"},
	"imagePullSecrets":   []any{map[string]any{"name": "registry"}},
	"database":           map[string]any{"pollingOnly": true},
	"migrate":            map[string]any{"secretName": "owner", "noRoles": true, "resources": map[string]any{"limits": map[string]any{"memory": "128Mi"}}},
	"gracePeriodSeconds": 45,
	"serve": map[string]any{"token": map[string]any{"secretName": "token"}, "sessionKey": map[string]any{"secretName": "session"},
		"extraArgs": []any{"--address-rate=0"}, "env": []any{map[string]any{"name": "A", "value": "b"}}},
	"worker":       map[string]any{"enabled": true, "queues": []any{"emails", "news"}, "extraArgs": []any{"--mail-rate=10/s"}},
	"podLabels":    map[string]any{"team": "mail"},
	"nodeSelector": map[string]any{"disk": "fast"}, "tolerations": []any{map[string]any{"key": "spot", "operator": "Exists"}},
	"podAnnotations":            map[string]any{"a": "b"},
	"affinity":                  map[string]any{"podAntiAffinity": map[string]any{}},
	"topologySpreadConstraints": []any{map[string]any{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"}},
}

// render returns the objects that the chart makes of values. Each one is decoded strictly: an
// unknown field, a field twice and a wrong type are errors.
func render(t *testing.T, values map[string]any) []runtime.Object {
	t.Helper()
	chart, err := loader.Load(chartFolder)
	if err != nil {
		t.Fatal(err)
	}
	given, err := util.ToRenderValues(chart, values, common.ReleaseOptions{Name: "mq", Namespace: "ns", Revision: 1, IsInstall: true}, common.DefaultCapabilities)
	if err != nil {
		t.Fatal(err)
	}
	files, err := engine.Engine{Strict: true}.RenderWithContext(t.Context(), chart, given)
	if err != nil {
		t.Fatal(err)
	}
	decoder := serializer.NewCodecFactory(scheme.Scheme, serializer.EnableStrict).UniversalDeserializer()
	var objects []runtime.Object
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if strings.HasSuffix(name, "NOTES.txt") {
			continue
		}
		for document := range strings.SplitSeq(files[name], "\n---\n") {
			if strings.TrimSpace(document) == "" {
				continue
			}
			object, _, err := decoder.Decode([]byte(document), nil, nil)
			if err != nil {
				t.Fatalf("%s: %v\n%s", name, err, document)
			}
			objects = append(objects, object)
		}
	}
	return objects
}

// The chart passes Helm's linter, and Kubernetes knows every field of its objects.
func TestChart(t *testing.T) {
	for name, values := range map[string]map[string]any{"defaults": {}, "all": all} {
		for _, m := range lint.RunAll(chartFolder, values, "ns").Messages {
			if m.Severity >= support.WarningSev {
				t.Errorf("%s: %v", name, m)
			}
		}
	}
	kinds := map[string]int{}
	for _, object := range render(t, all) {
		kinds[object.GetObjectKind().GroupVersionKind().Kind]++
		switch o := object.(type) {
		case *appsv1.Deployment:
			checkSelector(t, o.Name, o.Spec.Selector, o.Spec.Template.Labels)
			checkPod(t, o.Name, o.Spec.Template.Spec)
			c := o.Spec.Template.Spec.Containers[0]
			if c.ReadinessProbe == nil || c.LivenessProbe == nil {
				t.Errorf("%s has no probes", o.Name)
			}
			if grace := o.Spec.Template.Spec.TerminationGracePeriodSeconds; grace == nil || *grace != 55 {
				t.Errorf("%s is killed after %v s, want more than --grace", o.Name, grace)
			}
		case *batchv1.Job:
			checkPod(t, o.Name, o.Spec.Template.Spec)
			if o.Annotations["helm.sh/hook"] != "pre-install,pre-upgrade" {
				t.Errorf("%s is not a hook: %v", o.Name, o.Annotations)
			}
		case *policyv1.PodDisruptionBudget:
			checkBudget(t, o, render(t, all))
		}
	}
	if want := map[string]int{"Deployment": 2, "Job": 1, "Service": 1, "PodDisruptionBudget": 2}; !maps.Equal(kinds, want) {
		t.Errorf("it makes %v, want %v", kinds, want)
	}
	if n := len(render(t, nil)); n != 4 {
		t.Errorf("the defaults make %d objects, want 4", n)
	}
}

func checkSelector(t *testing.T, name string, selector *v1.LabelSelector, labels map[string]string) {
	t.Helper()
	for key, value := range selector.MatchLabels {
		if labels[key] != value {
			t.Errorf("%s selects %s=%s, its pods have %q", name, key, value, labels[key])
		}
	}
}

// checkBudget checks that a budget is about the pods of one Deployment.
func checkBudget(t *testing.T, budget *policyv1.PodDisruptionBudget, objects []runtime.Object) {
	t.Helper()
	for _, object := range objects {
		if d, ok := object.(*appsv1.Deployment); ok && maps.Equal(d.Spec.Selector.MatchLabels, budget.Spec.Selector.MatchLabels) {
			return
		}
	}
	t.Errorf("%s is about no Deployment", budget.Name)
}

// checkPod checks that a pod runs without rights, and has its secrets by reference.
func checkPod(t *testing.T, name string, pod corev1.PodSpec) {
	t.Helper()
	c := pod.Containers[0]
	switch s := c.SecurityContext; {
	case !*pod.SecurityContext.RunAsNonRoot || *pod.SecurityContext.RunAsUser == 0:
		t.Errorf("%s may run as root", name)
	case !*s.ReadOnlyRootFilesystem || *s.AllowPrivilegeEscalation || !slices.Equal(s.Capabilities.Drop, []corev1.Capability{"ALL"}):
		t.Errorf("%s has the rights %+v", name, s)
	case *pod.AutomountServiceAccountToken:
		t.Errorf("%s can use the API of the cluster", name)
	}
	for _, e := range c.Env {
		secret := strings.HasSuffix(e.Name, "_URL") || strings.HasSuffix(e.Name, "_TOKEN") || strings.HasSuffix(e.Name, "_KEY")
		if secret && (e.Value != "" || e.ValueFrom == nil || e.ValueFrom.SecretKeyRef == nil) {
			t.Errorf("%s has %s not by reference", name, e.Name)
		}
	}
}

// Values that the chart does not know, or that have a wrong type, are refused.
func TestChartRefusesWrongValues(t *testing.T) {
	chart, err := loader.Load(chartFolder)
	if err != nil {
		t.Fatal(err)
	}
	for _, wrong := range []map[string]any{
		{"replicas": 2},
		{"serve": map[string]any{"replicas": "two"}},
		{"database": map[string]any{"secretName": ""}},
		{"worker": map[string]any{"queues": []any{}}},
	} {
		if _, err := util.ToRenderValues(chart, wrong, common.ReleaseOptions{Name: "mq"}, common.DefaultCapabilities); err == nil {
			t.Errorf("it accepts %v", wrong)
		}
	}
}

// The compose file is valid, needs its secrets, and starts the server after the migration.
func TestCompose(t *testing.T) {
	file, err := filepath.Abs("../deploy/compose.yaml")
	if err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	load := func(env composetypes.Mapping) (*composetypes.Project, error) {
		return composeloader.LoadWithContext(context.Background(), composetypes.ConfigDetails{WorkingDir: filepath.Dir(file),
			ConfigFiles: []composetypes.ConfigFile{{Filename: file, Content: content}}, Environment: maps.Clone(env)})
	}
	secrets := composetypes.Mapping{"POSTGRES_PASSWORD": "p", "POSTHASTE_TOKEN": "t", "SMTP_URL": "smtp://mail.example.com"}
	project, err := load(secrets)
	if err != nil {
		t.Fatal(err)
	}
	for name := range secrets {
		less := maps.Clone(secrets)
		delete(less, name)
		if _, err := load(less); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("without %s: %v", name, err)
		}
	}
	server, migration := project.Services["posthaste"], project.Services["migrate"]
	if server.DependsOn["migrate"].Condition != "service_completed_successfully" || migration.DependsOn["postgres"].Condition != "service_healthy" {
		t.Errorf("the server waits for %v, the migration for %v", server.DependsOn, migration.DependsOn)
	}
	for _, s := range []composetypes.ServiceConfig{server, migration} {
		if !s.ReadOnly || !slices.Equal(s.CapDrop, []string{"ALL"}) || s.Image != "posthaste:dev" || s.Environment["DATABASE_URL"] == nil {
			t.Errorf("%s runs as %+v", s.Name, s)
		}
	}
	if server.HealthCheck == nil || server.StopGracePeriod == nil {
		t.Error("the server has no health check, or no time to end")
	}
}
