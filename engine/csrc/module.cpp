// What Python sees: bind_*.cpp check shape, type and contiguity, release the GIL, and call.
#include "bindings.h"

NB_MODULE(_kernels, m) {
    ktdesk::bind_pool(m);
    ktdesk::bind_pack(m);
    ktdesk::bind_linear(m);
    ktdesk::bind_experts(m);
    ktdesk::bind_attention(m);
    ktdesk::bind_elementwise(m);
    ktdesk::bind_sampling(m);
    ktdesk::bind_probes(m);
    ktdesk::bind_program(m);
    ktdesk::bind_stream(m);
    ktdesk::bind_handoff(m);
}
