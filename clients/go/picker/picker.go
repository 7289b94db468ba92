// Package main is an endpoint picker for Envoy's external processing filter and the Gateway API Inference Extension: it
// reads the model of a request and names the replica that the ring of its fleet chooses for it.
package main

import (
	"encoding/json"
	"errors"
	"io"
	"strconv"
	"strings"
	"sync"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	filter "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	ext "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	status "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/structpb"

	"lora-autoscaler/clients/go/ring"
)

// The endpoint picker protocol of the Gateway API Inference Extension.
const (
	destination      = "x-gateway-destination-endpoint"
	destinationSpace = "envoy.lb"
	subset           = "x-gateway-destination-endpoint-subset"
	subsetSpace      = "envoy.lb.subset_hint"
)

const tooMany = "too many requests of this tenant are in flight while the fleet is full; ask again later"

// Envoy takes streamed bodies of up to 64 KiB at a time.
const chunkBytes = 60 << 10

// picker answers one fleet's requests. Its counts are of the requests that pass through this process.
type picker struct {
	ext.UnimplementedExternalProcessorServer
	current      func() *ring.Ring
	maxBodyBytes int

	mutex    sync.Mutex
	inFlight map[string]int64 // by slot or replica
	asked    map[string]int64 // by adapter
}

func newPicker(current func() *ring.Ring, maxBodyBytes int) *picker {
	return &picker{current: current, maxBodyBytes: maxBodyBytes, inFlight: map[string]int64{}, asked: map[string]int64{}}
}

// refusal is an answer that goes to the client instead of a replica's.
type refusal struct {
	code       status.StatusCode
	message    string
	retryAfter int64 // seconds; 0: nothing is said
}

// take chooses a replica and counts the request, in one step: a burst must not see the same counts.
func (p *picker) take(model string, allowed func(ring.Member) bool) (ring.Member, *refusal) {
	current := p.current()
	if current == nil {
		return ring.Member{}, &refusal{code: status.StatusCode_ServiceUnavailable, message: "no ring was read yet"}
	}
	p.mutex.Lock()
	defer p.mutex.Unlock()
	if ms, refused := current.RefusedMs(model, func(key string) int64 { return p.asked[key] }); refused {
		return ring.Member{}, &refusal{status.StatusCode_TooManyRequests, tooMany, max(1, (ms+999)/1000)}
	}
	chosen, ok := current.Choose(model, func(key string) int64 { return p.inFlight[key] }, false, allowed)
	if !ok && current.Owners(model, false).Rejected {
		return ring.Member{}, &refusal{code: status.StatusCode_NotFound, message: "the model does not exist"}
	}
	if !ok {
		return ring.Member{}, &refusal{code: status.StatusCode_ServiceUnavailable, message: "no replica serves the model now"}
	}
	p.inFlight[chosen.Member.Key()]++
	p.asked[model]++
	return chosen.Member, nil
}

func (p *picker) release(key, model string) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	fewer(p.inFlight, key)
	fewer(p.asked, model)
}

func fewer(counts map[string]int64, key string) {
	if counts[key]--; counts[key] <= 0 {
		delete(counts, key)
	}
}

// call is one HTTP request as Envoy sends it.
type call struct {
	picker  *picker
	stream  ext.ExternalProcessor_ProcessServer
	duplex  bool // FULL_DUPLEX_STREAMED: nothing is answered before the whole body was read
	allowed func(ring.Member) bool
	body    []byte
	taken   string // the key of the member that was chosen
	model   string
}

// Process follows one HTTP request from its headers to its end; until then it counts as in flight.
func (p *picker) Process(stream ext.ExternalProcessor_ProcessServer) error {
	c := &call{picker: p, stream: stream}
	defer func() {
		if c.taken != "" {
			p.release(c.taken, c.model)
		}
	}()
	for {
		request, err := stream.Recv()
		if errors.Is(err, io.EOF) || stream.Context().Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		refused, err := c.answer(request)
		if err != nil || refused {
			return err
		}
	}
}

// answer is true where the request was refused: then the stream is over.
func (c *call) answer(request *ext.ProcessingRequest) (bool, error) {
	if config := request.GetProtocolConfig(); config != nil {
		c.duplex = config.GetRequestBodyMode() == filter.ProcessingMode_FULL_DUPLEX_STREAMED
	}
	switch message := request.Request.(type) {
	case *ext.ProcessingRequest_RequestHeaders:
		c.allowed = offered(request.GetMetadataContext())
		if message.RequestHeaders.EndOfStream {
			return c.pick("", false)
		}
		if c.duplex {
			return false, nil
		}
		return false, c.send(&ext.ProcessingResponse{Response: &ext.ProcessingResponse_RequestHeaders{
			RequestHeaders: &ext.HeadersResponse{},
		}})
	case *ext.ProcessingRequest_RequestBody:
		c.body = append(c.body, message.RequestBody.Body...)
		if len(c.body) > c.picker.maxBodyBytes {
			return true, c.refuse(&refusal{code: status.StatusCode_PayloadTooLarge, message: "the body is too long"})
		}
		if c.duplex && !message.RequestBody.EndOfStream {
			return false, nil
		}
		return c.pickByBody()
	case *ext.ProcessingRequest_RequestTrailers:
		if c.duplex {
			if refused, err := c.pickByBody(); refused || err != nil {
				return refused, err
			}
		}
		return false, c.send(&ext.ProcessingResponse{Response: &ext.ProcessingResponse_RequestTrailers{
			RequestTrailers: &ext.TrailersResponse{},
		}})
	case *ext.ProcessingRequest_ResponseHeaders:
		return false, c.send(&ext.ProcessingResponse{Response: &ext.ProcessingResponse_ResponseHeaders{
			ResponseHeaders: &ext.HeadersResponse{},
		}})
	case *ext.ProcessingRequest_ResponseBody:
		return false, c.send(&ext.ProcessingResponse{Response: &ext.ProcessingResponse_ResponseBody{
			ResponseBody: streamed(message.ResponseBody.Body, message.ResponseBody.EndOfStream),
		}})
	case *ext.ProcessingRequest_ResponseTrailers:
		return false, c.send(&ext.ProcessingResponse{Response: &ext.ProcessingResponse_ResponseTrailers{
			ResponseTrailers: &ext.TrailersResponse{},
		}})
	}
	return false, nil
}

func (c *call) pickByBody() (bool, error) {
	model, err := modelOf(c.body)
	if err != nil {
		return true, c.refuse(&refusal{code: status.StatusCode_BadRequest, message: err.Error()})
	}
	return c.pick(model, true)
}

// pick names the replica in the header and in the metadata that the protocol asks for.
func (c *call) pick(model string, hasBody bool) (bool, error) {
	if c.taken != "" {
		return false, nil
	}
	member, refused := c.picker.take(model, c.allowed)
	if refused != nil {
		return true, c.refuse(refused)
	}
	c.taken, c.model = member.Key(), model
	common := &ext.CommonResponse{HeaderMutation: &ext.HeaderMutation{SetHeaders: []*core.HeaderValueOption{{
		Header:       &core.HeaderValue{Key: destination, RawValue: []byte(member.Address)},
		AppendAction: core.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD,
	}}}}
	response := &ext.ProcessingResponse{DynamicMetadata: destinationMetadata(member.Address)}
	if hasBody && !c.duplex {
		response.Response = &ext.ProcessingResponse_RequestBody{RequestBody: &ext.BodyResponse{Response: common}}
		return false, c.send(response)
	}
	response.Response = &ext.ProcessingResponse_RequestHeaders{RequestHeaders: &ext.HeadersResponse{Response: common}}
	if err := c.send(response); err != nil || !hasBody {
		return false, err
	}
	for first := true; first || len(c.body) > 0; first = false {
		part := c.body[:min(len(c.body), chunkBytes)]
		c.body = c.body[len(part):]
		err := c.send(&ext.ProcessingResponse{Response: &ext.ProcessingResponse_RequestBody{
			RequestBody: streamed(part, len(c.body) == 0),
		}})
		if err != nil {
			return false, err
		}
	}
	return false, nil
}

func (c *call) refuse(r *refusal) error {
	body, err := json.Marshal(map[string]any{"error": map[string]any{"message": r.message, "code": int(r.code)}})
	if err != nil {
		return err
	}
	answer := &ext.ImmediateResponse{Status: &status.HttpStatus{Code: r.code}, Body: body, Details: "endpoint_picker"}
	if r.retryAfter > 0 {
		answer.Headers = &ext.HeaderMutation{SetHeaders: []*core.HeaderValueOption{{
			Header: &core.HeaderValue{Key: "retry-after", RawValue: []byte(strconv.FormatInt(r.retryAfter, 10))},
		}}}
	}
	return c.send(&ext.ProcessingResponse{Response: &ext.ProcessingResponse_ImmediateResponse{ImmediateResponse: answer}})
}

func (c *call) send(response *ext.ProcessingResponse) error { return c.stream.Send(response) }

func streamed(body []byte, end bool) *ext.BodyResponse {
	return &ext.BodyResponse{Response: &ext.CommonResponse{BodyMutation: &ext.BodyMutation{
		Mutation: &ext.BodyMutation_StreamedResponse{StreamedResponse: &ext.StreamedBodyResponse{Body: body, EndOfStream: end}},
	}}}
}

func destinationMetadata(address string) *structpb.Struct {
	inner := &structpb.Struct{Fields: map[string]*structpb.Value{destination: structpb.NewStringValue(address)}}
	return &structpb.Struct{Fields: map[string]*structpb.Value{destinationSpace: structpb.NewStructValue(inner)}}
}

// offered is which endpoints the gateway lets us choose from; nil: all. A list that is empty allows nobody.
func offered(metadata *core.Metadata) func(ring.Member) bool {
	hint, there := metadata.GetFilterMetadata()[subsetSpace].GetFields()[subset]
	if !there {
		return nil
	}
	addresses := map[string]bool{}
	for _, item := range hint.GetListValue().GetValues() {
		addresses[item.GetStringValue()] = true
	}
	for _, item := range strings.Split(hint.GetStringValue(), ",") {
		addresses[strings.TrimSpace(item)] = true
	}
	return func(m ring.Member) bool { return addresses[m.Address] }
}

// modelOf reads `model`: exactly that key, where encoding/json into a struct would take MODEL as well.
func modelOf(body []byte) (string, error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(body, &fields); err != nil {
		return "", errors.New("the body is not a JSON object")
	}
	var model string
	if err := json.Unmarshal(fields["model"], &model); err != nil || model == "" {
		return "", errors.New("the body names no model")
	}
	return model, nil
}
