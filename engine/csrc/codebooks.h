// The codebooks of the IQ1, IQ2 and IQ3 formats: constants of the file format. An entry stands for 8 values
// (IQ1, IQ2: 2 bits each) or 4 (IQ3: 3 bits each), lowest bits first; a field is the number of a level. The
// lists lie beside quants/iq_quants.py, which reads the same files. Included by dequantize_iq.inl, in its
// namespace.

constexpr uint16_t kIQ1Book[2048] = {
#include "../ktdesk_engine/quants/codebooks/iq1.csv"
};

constexpr uint16_t kIQ2XXSBook[256] = {
#include "../ktdesk_engine/quants/codebooks/iq2_xxs.csv"
};

constexpr uint16_t kIQ2XSBook[512] = {
#include "../ktdesk_engine/quants/codebooks/iq2_xs.csv"
};

constexpr uint16_t kIQ2SBook[1024] = {
#include "../ktdesk_engine/quants/codebooks/iq2_s.csv"
};

constexpr uint16_t kIQ3XXSBook[256] = {
#include "../ktdesk_engine/quants/codebooks/iq3_xxs.csv"
};

constexpr uint16_t kIQ3SBook[512] = {
#include "../ktdesk_engine/quants/codebooks/iq3_s.csv"
};
