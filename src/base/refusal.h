// The refusals are public: trapless/refusal.h.
#ifndef TL_BASE_REFUSAL_H
#define TL_BASE_REFUSAL_H

#include "trapless/refusal.h"

#endif
