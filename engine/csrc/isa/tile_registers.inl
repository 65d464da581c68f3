// Tile registers: their configuration and their instructions.
//
// All tile instructions are written out with a memory clobber: the compiler's intrinsics have none, and
// stores into a tile's memory could be moved past the load.

#define KTDESK_TILE_ZERO(tile) asm volatile("tilezero %%tmm" #tile::: "memory")
#define KTDESK_TILE_LOAD(tile, from) \
    asm volatile("tileloadd (%0,%1,1), %%tmm" #tile::"r"(from), "r"(kTileStride) : "memory")
#define KTDESK_TILE_STORE(tile, to) \
    asm volatile("tilestored %%tmm" #tile ", (%0,%1,1)" ::"r"(to), "r"(kTileStride) : "memory")
// product: the instruction, tdpbf16ps or one of tdpb[su][su]d.
#define KTDESK_TILE_PRODUCT(product, sum, rows, panel) \
    asm volatile(product " %%tmm" #panel ", %%tmm" #rows ", %%tmm" #sum::: "memory")

// All eight tiles have 16 rows of 64 bytes. Written through volatile: the compiler knows of the load only
// that it reads eight bytes, and drops stores to the others.
void configure() {
    alignas(64) volatile uint8_t configuration[64] = {};
    configuration[0] = 1;
    for (int tile = 0; tile < 8; ++tile) {
        configuration[16 + 2 * tile] = 64;
        configuration[48 + tile] = kTileRows;
    }
    asm volatile("ldtilecfg (%0)" ::"r"(configuration) : "memory");
}

void release() { asm volatile("tilerelease" ::: "memory"); }
