/* asks - asks twice, gives up the first time, and prints what it receives in between and the second answer.
 *   asks SOCKET MILLISECONDS (to receive for in between)
 */
#include "bccn.h"

int main(int argc, char **argv)
{
	static char buffer[BCCN_BUFFER];
	struct bccn_event got;
	struct bccn bus;

	if (argc != 3 || bccn_connect(&bus, argv[1], buffer, sizeof buffer))
		return 2;
	if (!bccn_ask(&bus, "!/slow", NULL, 0, 50, NULL, NULL, &got) || errno != ETIMEDOUT)
		return 1;
	bccn_publish(&bus, "gave/up", "", 0);
	while (bccn_receive(&bus, atoi(argv[2]), &got) > 0)
		printf("received %s\n", got.key);
	if (bccn_ask(&bus, "!/slow", NULL, 0, 20000, NULL, NULL, &got))
		return 1;
	printf("answer %s\n", got.payload);
	return 0;
}
