package control

import "singlepass.dev/daemon/api"

func (s *Server) upstreams(r request) (any, error) {
	return s.cfg.Upstreams.Upstreams(r.Context())
}

func (s *Server) addUpstream(r request) (any, error) {
	var in api.UpstreamRequest
	if err := r.decode(&in); err != nil {
		return nil, err
	}
	return s.cfg.Upstreams.AddUpstream(r.Context(), in, r.by)
}

func (s *Server) removeUpstream(r request) (any, error) {
	return nil, s.cfg.Upstreams.RemoveUpstream(r.Context(), r.PathValue("name"), r.by)
}

func (s *Server) upstreamTools(r request) (any, error) {
	return s.cfg.Upstreams.UpstreamTools(r.Context(), r.PathValue("name"))
}

func (s *Server) upstreamPrompts(r request) (any, error) {
	return s.cfg.Upstreams.UpstreamPrompts(r.Context(), r.PathValue("name"))
}

func (s *Server) shareUpstream(r request) (any, error) {
	var in api.UpstreamShare
	if err := r.decode(&in); err != nil {
		return nil, err
	}
	return s.cfg.Upstreams.ShareUpstream(r.Context(), r.PathValue("name"), in, r.by)
}

func (s *Server) acceptUpstreamTool(r request) (any, error) {
	var in api.UpstreamAccept
	if err := r.decode(&in); err != nil {
		return nil, err
	}
	return s.cfg.Upstreams.AcceptUpstreamTool(r.Context(), r.PathValue("name"), in, r.by)
}
