package httpapi

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/asof/asof/internal/app/admission"
)

// metrics counts operations. The labels have few values: a code is one of the
// API's, a status one of HTTP's.
type metrics struct {
	operations *prometheus.CounterVec
	durations  *prometheus.HistogramVec
	documents  prometheus.Counter
	refused    *prometheus.CounterVec
	webSockets prometheus.Gauge
}

func newMetrics(to prometheus.Registerer, gate *admission.Gate, memory *admission.Budget) *metrics {
	m := &metrics{
		operations: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "asof_operations_total",
			Help: "GraphQL operations answered, by type, HTTP status (0 in streams, 499 where the client did not wait), " +
				"code of the first error (CANCELLED where the client did not wait), and what executed them.",
		}, []string{"type", "status", "code", "executor"}),
		durations: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "asof_operation_duration_seconds",
			Help:    "Time from the arrival of a GraphQL operation to its answer, by type and by what executed it.",
			Buckets: []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30},
		}, []string{"type", "executor"}),
		documents: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "asof_documents_read_total",
			Help: "Versions of documents that operations read from the store.",
		}),
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "asof_requests_refused_total",
			Help: "Requests that were refused before they were read, by what was wrong: host, origin, content-type, content-encoding, method, upgrade, websockets.",
		}, []string{"reason"}),
		webSockets: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "asof_websockets",
			Help: "Open WebSocket connections.",
		}),
	}
	if to != nil {
		to.MustRegister(m.operations, m.durations, m.documents, m.refused, m.webSockets,
			prometheus.NewGaugeFunc(prometheus.GaugeOpts{
				Name: "asof_operations_in_flight",
				Help: "GraphQL operations that are being executed.",
			}, func() float64 { return float64(gate.Inside()) }),
			prometheus.NewGaugeFunc(prometheus.GaugeOpts{
				Name: "asof_requests_held_bytes",
				Help: "Memory that requests hold, as it is counted for --max-memory.",
			}, func() float64 { return float64(memory.Held()) }))
	}
	return m
}

func (m *metrics) observe(op *operation, took time.Duration) {
	kind := op.kind
	if kind == "" {
		kind = "none"
	}
	m.operations.WithLabelValues(kind, strconv.Itoa(op.status), op.code(), op.by()).Inc()
	m.durations.WithLabelValues(kind, op.by()).Observe(took.Seconds())
	if read := op.read.Load(); read > 0 {
		m.documents.Add(float64(read))
	}
}
