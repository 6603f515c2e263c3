// Modules that hold definitions of other projects' kinds; `files` says where. Nothing is built from them.
module mainstay.dev/real/definitions

go 1.26.0

require (
	github.com/ory/oathkeeper-maester v0.1.10
	istio.io/api v1.32.0
	knative.dev/eventing v0.16.0
	knative.dev/serving v0.49.1
	sigs.k8s.io/gateway-api v1.6.3
)
