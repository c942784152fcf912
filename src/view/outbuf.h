#include "pack/outbuf.h"
